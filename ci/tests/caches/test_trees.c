/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that draft trees stand behind several sequences at once while others go on: what their nodes see, that numbers
 * and commits are each sequence's own, that cells of rejected nodes are free at once and accepted ones stay, what is
 * refused meanwhile, and that a sequence may be cut back into what a commit brought.
 */
#include "rig.h"

/* Nodes of these sequences; the rig's positions follow. */
static int propose(rig *r, const uint32_t *seqs, const int32_t *parents, const uint32_t *pos, uint32_t n)
{
    int error = kvb_cache_propose(r->cache, seqs, parents, n);
    for (uint32_t i = 0; i < n && !error; i++)
        r->pos[r->next++] = pos[i];
    r->n_new = error ? r->n_new : n;
    return error;
}

#define EACH_TREES(type) EACH_CACHE(type, KVB_CACHE_SEQ | KVB_CACHE_TREE)

static void open(rig *r, const kvb_cache_type *type)
{
    rig_open(r, type, 24, 16, 4, 4);
    assert_int_equal(rig_step(r, (const uint32_t[]){0, 0, 1, 2, 2, 2}, 6), 0); /* 0 1 | 2 | 3 4 5 */
    rig_store(r);
}

static void trees_beside_each_other(void **state)
{
    (void)state;
    EACH_TREES(type)
    {
        static rig r;
        open(&r, type);
        /* two sequences in one proposal, their nodes between each other: 6 and 8 of 0, 7 and 9 of 2 */
        assert_int_equal(propose(&r, (const uint32_t[]){0, 2, 0, 2}, (const int32_t[]){-1, -1, 0, -1},
                                 (const uint32_t[]){2, 3, 3, 3}, 4),
                         0);
        rig_sees(&r, 0, TOKENS(0, 1, 6));
        rig_sees(&r, 1, TOKENS(3, 4, 5, 7));
        rig_sees(&r, 2, TOKENS(0, 1, 6, 8));
        rig_sees(&r, 3, TOKENS(3, 4, 5, 9));
        assert_int_equal(kvb_cache_pending(r.cache, 0), 2);
        assert_int_equal(kvb_cache_pending(r.cache, 1), 0);
        /* sequence 1 decodes, sequence 3 begins */
        assert_int_equal(rig_step(&r, (const uint32_t[]){1, 3}, 2), 0); /* 10 11 */
        rig_sees(&r, 0, TOKENS(2, 10));
        rig_sees(&r, 1, TOKENS(11));
        /* the tree of 2 goes on: its node 2, child of its node 1 */
        assert_int_equal(propose(&r, (const uint32_t[]){2}, (const int32_t[]){1}, (const uint32_t[]){4}, 1),
                         0); /* 12 */
        rig_sees(&r, 0, TOKENS(3, 4, 5, 9, 12));
        assert_int_equal(rig_usage(&r).cells_live, 13);
        /* 0 takes both of its nodes; those of 2 stay */
        assert_int_equal(kvb_cache_commit(r.cache, 0, IDS(0, 1)), 0);
        assert_int_equal(kvb_cache_length(r.cache, 0), 4);
        assert_int_equal(kvb_cache_pending(r.cache, 2), 3);
        assert_int_equal(rig_usage(&r).cells_live, 13);
        assert_int_equal(kvb_cache_commit(r.cache, 2, IDS(0, 2)), -EINVAL); /* 2 is the child of 1 */
        assert_int_equal(kvb_cache_commit(r.cache, 2, IDS(1, 2)), 0);       /* 7 is rejected */
        assert_int_equal(rig_usage(&r).cells_live, 12);
        assert_int_equal(rig_usage(&r).cells_moved, type == &kvb_cache_paged ? 2 : 0);
        assert_int_equal(rig_step(&r, (const uint32_t[]){0, 2}, 2), 0); /* 13 14 */
        rig_sees(&r, 0, TOKENS(0, 1, 6, 8, 13));
        rig_sees(&r, 1, TOKENS(3, 4, 5, 9, 12, 14));
        /* back into what the commit brought, and on */
        assert_int_equal(kvb_cache_seq_rm(r.cache, 2, 4, KVB_POS_END), 0);
        assert_int_equal(rig_step(&r, (const uint32_t[]){2}, 1), 0); /* 15 */
        rig_sees(&r, 0, TOKENS(3, 4, 5, 9, 15));
        assert_int_equal(rig_usage(&r).cells_live, 13);
        rig_close(&r);
    }
}

/* What is rejected makes room for the next step, cell for cell. */
static void rejected_cells_are_free(void **state)
{
    (void)state;
    EACH_TREES(type)
    {
        if (type->flags & KVB_CACHE_FORGETS)
            continue;
        static rig r;
        open(&r, type);
        assert_int_equal(
            propose(&r, (const uint32_t[]){1, 1, 1}, (const int32_t[]){-1, 0, 0}, (const uint32_t[]){1, 2, 2}, 3), 0);
        rig_store(&r);
        assert_int_equal(rig_usage(&r).cells_live, 9);
        assert_int_equal(kvb_cache_commit(r.cache, 1, IDS(0, 2)), 0);
        assert_int_equal(rig_usage(&r).cells_live, 8);
        assert_int_equal(rig_step(&r, (const uint32_t[]){0}, 1), 0); /* in the cell that is free */
        rig_sees(&r, 0, TOKENS(0, 1, 9));
        assert_int_equal(rig_usage(&r).high_water, 9);
        assert_int_equal(propose(&r, (const uint32_t[]){3, 3}, (const int32_t[]){-1, 0}, (const uint32_t[]){0, 1}, 2),
                         0);
        assert_int_equal(kvb_cache_clear(r.cache), 0);
        assert_int_equal(rig_usage(&r).cells_live, 0);
        rig_close(&r);
    }
}

static void what_is_refused_meanwhile(void **state)
{
    (void)state;
    EACH_TREES(type)
    {
        static rig r;
        open(&r, type);
        assert_int_equal(propose(&r, (const uint32_t[]){2}, (const int32_t[]){-1}, (const uint32_t[]){3}, 1), 0);
        rig_store(&r);
        const kvb_cache_usage before = rig_usage(&r);
        assert_int_equal(kvb_cache_begin_step(r.cache, (const uint32_t[]){0, 2}, 2), -EINVAL);
        assert_string_equal(kvb_cache_why(r.cache), "1 nodes of sequence 2 are pending: commit first");
        assert_false(kvb_cache_can_extend(r.cache, (const uint32_t[]){2}, 1));
        assert_int_equal(kvb_cache_seq_cp(r.cache, 2, 3, 0, KVB_POS_END), -EINVAL);
        assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 2, 0, 0), -EINVAL);
        assert_int_equal(kvb_cache_seq_rm(r.cache, 2, 0, 1), -EINVAL);
        assert_int_equal(kvb_cache_seq_keep(r.cache, 2), -EINVAL);
        assert_int_equal(kvb_cache_seq_reorder(r.cache, (const uint32_t[]){0}, (const uint32_t[]){2}, 1), -EINVAL);
        assert_int_equal(kvb_cache_seq_reorder(r.cache, (const uint32_t[]){2}, (const uint32_t[]){0}, 1), -EINVAL);
        assert_int_equal(kvb_cache_propose(r.cache, (const uint32_t[]){2, 0}, (const int32_t[]){0, 0}, 2), -EINVAL);
        assert_string_equal(kvb_cache_why(r.cache), "parent 0 of node 0 is not an earlier node of sequence 0");
        assert_int_equal(kvb_cache_propose(r.cache, (const uint32_t[]){64}, (const int32_t[]){-1}, 1), -EINVAL);
        assert_int_equal(kvb_cache_commit(r.cache, 64, NULL, 0), -EINVAL);
        assert_int_equal(kvb_cache_commit(r.cache, 0, IDS(0)), -EINVAL); /* 2's */
        const kvb_cache_usage after = rig_usage(&r);
        rig_assert_same(&before, &after);
        rig_sees(&r, 0, TOKENS(3, 4, 5, 6)); /* the plan is in force still */
        /* others are free to do all of it */
        assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 3, 0, KVB_POS_END), 0);
        assert_int_equal(kvb_cache_seq_reorder(r.cache, (const uint32_t[]){0, 1}, (const uint32_t[]){1, 0}, 2), 0);
        assert_int_equal(kvb_cache_seq_rm(r.cache, 3, 0, 1), 0);
        assert_int_equal(kvb_cache_commit(r.cache, 1, NULL, 0), 0); /* none of none */
        assert_int_equal(kvb_cache_pending(r.cache, 2), 1);
        rig_close(&r);
    }
}

/* An empty sequence that has nodes counts as alive: its commit is not refused. */
static void promised_sequences(void **state)
{
    (void)state;
    EACH_TREES(type)
    {
        static rig r;
        open(&r, type);
        assert_int_equal(propose(&r, (const uint32_t[]){9, 9}, (const int32_t[]){-1, 0}, (const uint32_t[]){0, 1}, 2),
                         0);
        rig_sees(&r, 1, TOKENS(6, 7));
        assert_int_equal(kvb_cache_length(r.cache, 9), 0);
        assert_int_equal(kvb_cache_begin_step(r.cache, (const uint32_t[]){8}, 1), -ENOSPC);
        assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 8, 0, KVB_POS_END), -ENOSPC);
        assert_int_equal(kvb_cache_propose(r.cache, (const uint32_t[]){8}, (const int32_t[]){-1}, 1), -ENOSPC);
        assert_int_equal(kvb_cache_seq_reorder(r.cache, (const uint32_t[]){8}, (const uint32_t[]){0}, 1), -ENOSPC);
        assert_int_equal(kvb_cache_commit(r.cache, 9, IDS(0)), 0);
        assert_int_equal(kvb_cache_length(r.cache, 9), 1);
        assert_int_equal(kvb_cache_seq_rm(r.cache, 9, 0, KVB_POS_END), 0);
        assert_int_equal(propose(&r, (const uint32_t[]){8}, (const int32_t[]){-1}, (const uint32_t[]){0}, 1), 0);
        assert_int_equal(kvb_cache_commit(r.cache, 8, NULL, 0), 0); /* never came to life */
        assert_int_equal(rig_step(&r, (const uint32_t[]){7}, 1), 0);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees_beside_each_other),
        cmocka_unit_test(rejected_cells_are_free),
        cmocka_unit_test(what_is_refused_meanwhile),
        cmocka_unit_test(promised_sequences),
    };
    return cmocka_run_group_tests_name("trees beside sequences", tests, NULL, NULL);
}
