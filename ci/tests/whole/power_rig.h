/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last queries of a long sequence over rows stored in a real pool, attended by real kernels, as they are or with
 * something spoilt on the way, and judged by the oracle of what is stored. Include after cmocka.h and parts.h.
 */
#ifndef KVB_TEST_POWER_RIG_H
#define KVB_TEST_POWER_RIG_H

#include <math.h>

#include "ci/tests/whole/filled.h"
#include "harness/replay/pool_watch.h"
#include "kernels/convert.h"
#include "oracle/rounded.h"

/* Shapes of the one layer. ROWS: of the step, a query and a query head each. */
enum { QUERIES = 4, HEADS = 16, KV_HEADS = 2, DIM = 128, ROWS = QUERIES * HEADS };

static const char power_model[] =
    "{'kv_cache.schema_version':2,'kv_cache.layers':1,'groups':[{'layers':[0],'heads':16,'kv_heads':2,'k_dim':128,"
    "'v_dim':128}]}";

static kvb_pool_wrap power_types[2]; /* K, V */
static kvb_pool *power_pools[2];     /* opened last */

static inline int power_pool_open(const kvb_pool_type *type, const kvb_pool_options *options, kvb_pool **pool)
{
    int error = kvb_pool_passing.open(type, options, pool);
    power_pools[type == &power_types[1].type] = *pool;
    return error;
}

static inline void power_open(filled *r, uint32_t cells, const kvb_pool_type *pool, const char *profile)
{
    for (int side = 0; side < 2; side++) {
        power_types[side] = kvb_pool_wrap_of(pool);
        power_types[side].type.open = power_pool_open;
    }
    filled_open(r, power_model, cells, QUERIES, &power_types[0].type, &power_types[1].type, profile);
    assert_int_equal(r->oracle->n_rows, ROWS);
}

/* ---- a call, spoilt ---------------------------------------------------------------------------------------------- */

/* What a kernel is handed, and what becomes of it. */
typedef struct power_call {
    const filled *at;
    kvb_attend_spec spec;
    kvb_group group; /* the spec's */
    float q[ROWS * DIM];
    uint32_t row_start[QUERIES + 1];
    kvb_run runs[2 * QUERIES];
    bool replaced[2]; /* of K, of V: the row of this cell */
    uint32_t cell;
    bool zero; /* the output becomes 0 */
    float out[ROWS * DIM], lse[ROWS];
    kvb_elem out_elem; /* what out was written as */
} power_call;

/* No query sees the cell. */
static inline void power_hide(power_call *c, uint32_t cell)
{
    uint32_t n = 0;
    for (uint32_t t = 0; t < QUERIES; t++) {
        uint32_t end = c->at->cells - QUERIES + t + 1, part[2][2] = {{0, cell < end ? cell : end}, {cell + 1, end}};
        c->row_start[t] = n;
        for (int i = 0; i < 2; i++)
            if (part[i][0] < part[i][1])
                c->runs[n++] = (kvb_run){part[i][0], part[i][1]};
    }
    c->row_start[QUERIES] = n;
    c->spec.mask = (kvb_mask){.kind = KVB_MASK_RUNS, .row_start = c->row_start, .runs = c->runs};
    c->spec.generation = 0;
}

/* One side's row of a cell is another cell's, until the kernel has run. */
static inline void power_replace(power_call *c, bool of_v, uint32_t cell, uint32_t by)
{
    power_pools[of_v]->type->gather_into(power_pools[of_v], cell, &by, 1);
    c->replaced[of_v] = true;
    c->cell = cell;
}

static inline void power_restore(const power_call *c)
{
    for (int side = 0; side < 2; side++)
        if (c->replaced[side])
            power_pools[side]->type->write_run(
                power_pools[side], c->cell, 1,
                kvb_values_rows(c->at->values, side ? KVB_ROWS_V : KVB_ROWS_K, 0, c->cell));
}

typedef void power_spoil(power_call *call);

/* Runs it into call->out and call->lse. false: the kernel does not take it. */
static inline bool power_attend(filled *r, const kvb_kernel *kernel, kvb_elem out_elem, power_spoil *spoil,
                                power_call *c)
{
    static unsigned char raw[ROWS * DIM * sizeof(float)];
    *c = (power_call){.at = r, .spec = *r->spec, .group = *r->spec->group, .out_elem = out_elem};
    c->spec.group = &c->group;
    c->spec.generation = 0;
    memcpy(c->q, filled_q(r, 0), sizeof c->q);
    if (spoil)
        spoil(c);
    const bool taken = filled_attend(r, kernel, &c->spec, c->q, out_elem, raw, c->lse);
    power_restore(c);
    if (!taken)
        return false;
    if (c->zero)
        memset(raw, 0, sizeof raw);
    if (out_elem == KVB_F32)
        memcpy(c->out, raw, sizeof c->out);
    else
        kvb_elems_decode(out_elem, c->out, raw, ROWS * DIM);
    return true;
}

/* ---- judging ----------------------------------------------------------------------------------------------------- */

/* What the outputs of one kernel are judged by. */
typedef struct power_judge {
    const kvb_expect *rows; /* [ROWS] by query and head */
    kvb_rounded *rounded;
    kvb_arithmetic arithmetic;
    double exact[ROWS * DIM]; /* attention of q itself, in double */
} power_judge;

/* After an honest call of the kernel. */
static inline void power_judge_open(filled *r, const kvb_kernel *kernel, power_judge *j)
{
    char why[256];
    size_t n;
    assert_int_equal(kvb_rounded_open(r->oracle, kernel, &j->rounded), 0);
    kvb_call_arithmetic(&r->call, &j->arithmetic);
    if (kvb_rounded_rows(j->rounded, &r->call.args, 1, 0, &j->arithmetic, &j->rows, &n, why, sizeof why))
        fail_msg("%s", why);
    assert_int_equal(n, ROWS);
    for (size_t i = 0; i < n; i++)
        for (uint32_t c = 0; c < DIM; c++)
            j->exact[i * DIM + c] = r->oracle->rows[i].terms[c].o;
}

/* rho of one row's out, and of the log-sum-exp unless lse is NULL. */
static inline kvb_diff power_row_diff(const filled *r, const power_judge *j, size_t row, const float *out,
                                      kvb_elem out_elem, const float *lse)
{
    unsigned char raw[DIM * sizeof(float)];
    kvb_diff diff = {0};
    if (out_elem == KVB_F32)
        memcpy(raw, out, DIM * sizeof *out);
    else
        kvb_elems_encode(out_elem, raw, out, DIM);
    kvb_diff_row(&diff, &j->rows[row], DIM, &j->arithmetic, r->spec->group->scale, (double)r->spec->group->softcap,
                 out_elem, raw, lse);
    return diff;
}

/* The largest rho of all rows. */
static inline double power_rho(const filled *r, const power_judge *j, const power_call *c, bool with_lse)
{
    double rho = 0;
    for (size_t row = 0; row < ROWS; row++)
        rho = fmax(rho, power_row_diff(r, j, row, c->out + row * DIM, c->out_elem, with_lse ? &c->lse[row] : NULL).rho);
    return rho;
}

#endif
