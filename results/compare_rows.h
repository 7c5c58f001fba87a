/* SPDX-License-Identifier: Apache-2.0 */
/* The tables that a comparison is printed as. Private to the comparison. */
#ifndef KVB_COMPARE_ROWS_H
#define KVB_COMPARE_ROWS_H

#include "results/compare.h"

/* For programs: every group and finding; the axes that a group spans hold an asterisk. 0 or -errno. */
int kvb_compare_rows_print(const kvb_comparison *comparison, const kvb_compare_view *view, FILE *out);

/* For people: the findings of first .. last as one table, the largest change of each verdict first; how many are left out
 * of a verdict that has many is told below. Returns rows or -errno. */
long kvb_findings_print(const kvb_comparison *comparison, const kvb_compare_view *view, kvb_verdict first,
                        kvb_verdict last, FILE *out);

/* For people: the groups that changed, or all. Returns rows or -errno. */
long kvb_groups_print(const kvb_comparison *comparison, const kvb_compare_view *view, FILE *out);

#endif
