/* SPDX-License-Identifier: Apache-2.0 */
/* What came of a call; the teams that calls are made with. */
#include "harness/calls/verdict.h"

#include <stdarg.h>
#include <stdio.h>

#include "harness/machine/team.h"

void kvb_call_wrong(kvb_call_verdict *v, kvb_check check, const char *format, ...)
{
    va_list list;
    if (v->check != KVB_CHECK_NONE || kvb_check_is_off(check))
        return;
    v->check = check;
    va_start(list, format);
    vsnprintf(v->words, sizeof v->words, format, list);
    va_end(list);
}

const kvb_team *kvb_call_team(kvb_call_teams *teams, uint32_t threads)
{
    if (threads > KVB_CALL_TEAM || (!teams->of[threads] && kvb_threads_start(threads, false, &teams->of[threads])))
        return NULL;
    return kvb_threads_team(teams->of[threads]);
}

void kvb_call_teams_end(kvb_call_teams *teams)
{
    for (uint32_t n = 0; n <= KVB_CALL_TEAM; n++) {
        if (teams->of[n])
            kvb_threads_end(teams->of[n]);
        teams->of[n] = NULL;
    }
}
