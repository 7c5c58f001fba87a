/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: of memory over a replay the record keeps the first, the last and the highest points, however long it was. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "harness/replay/meter.h"

/* A log of n events that hold 1000 bytes, of which 10 live; but for one event each that lives and holds more. */
static void log_report(uint32_t n, uint32_t most_live, uint32_t most_held, kvb_result *r)
{
    kvb_memory_log log = {0};
    kvb_result_init(r);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(
            kvb_memory_log_add(&log, (kvb_memory_point){i, i == most_live ? 11 : 10, i == most_held ? 1001 : 1000}), 0);
    kvb_memory_log_report(&log, r);
    kvb_memory_log_free(&log);
}

static bool has_event(const kvb_result *r, uint32_t event, double live, double held)
{
    for (uint32_t i = 0; i < r->memory.n_timeline; i++)
        if (r->memory.timeline[i].event == event)
            return r->memory.timeline[i].live_bytes == live && r->memory.timeline[i].held_bytes == held;
    return false;
}

static void few_events_are_all_kept(void **state)
{
    (void)state;
    kvb_result r;
    for (uint32_t n = 0; n <= KVB_MEMORY_POINTS; n++) {
        log_report(n, n, n, &r);
        assert_int_equal(r.memory.n_timeline, n);
        for (uint32_t i = 0; i < n; i++)
            assert_true(r.memory.timeline[i].event == i);
    }
}

static void many_events_keep_ends_and_peaks(void **state)
{
    (void)state;
    kvb_result r;
    static const uint32_t lengths[] = {KVB_MEMORY_POINTS + 1, 100, 127, 1000, 12345};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (uint32_t peak = 0; peak < lengths[l]; peak += 1 + lengths[l] / 61) {
            uint32_t n = lengths[l], other = n - 1 - peak;
            log_report(n, peak, other, &r);
            assert_in_range(r.memory.n_timeline, KVB_MEMORY_POINTS - 2, KVB_MEMORY_POINTS);
            assert_true(r.memory.timeline[0].event == 0);
            assert_true(r.memory.timeline[r.memory.n_timeline - 1].event == n - 1);
            assert_true(has_event(&r, peak, 11, peak == other ? 1001 : 1000));
            assert_true(has_event(&r, other, peak == other ? 11 : 10, 1001));
            for (uint32_t i = 1; i < r.memory.n_timeline; i++) {
                double gap = r.memory.timeline[i].event - r.memory.timeline[i - 1].event;
                assert_true(gap > 0 && gap <= n / (KVB_MEMORY_POINTS - 3) + 1);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_events_are_all_kept),
        cmocka_unit_test(many_events_keep_ends_and_peaks),
    };
    return cmocka_run_group_tests_name("memory over a replay", tests, NULL, NULL);
}
