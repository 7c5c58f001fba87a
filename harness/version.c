/* SPDX-License-Identifier: Apache-2.0 */
/* Build facts. */
#include "harness/version.h"

#include "version-facts.h"

const char kvb_version[] = KVB_FACT_VERSION;
const char kvb_build_commit[] = KVB_FACT_COMMIT;
#ifdef __clang__
const char kvb_compiler[] = __VERSION__;
#else
const char kvb_compiler[] = "gcc " __VERSION__;
#endif
const char kvb_flags[] = KVB_FACT_FLAGS;
const char kvb_workloads_installed[] = KVB_FACT_WORKLOADS;
const char kvb_plots_installed[] = KVB_FACT_PLOTS;
