/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of a flash kernel share. flash.c runs a call, pass.c goes over the blocks of cells, a product
 * (product_*.c) multiplies, with the loops of kernels/vector.
 */
#ifndef KVB_FLASH_H
#define KVB_FLASH_H

#include "kernels/flash/plan.h"
#include "kernels/vector/vector.h"

typedef struct kvb_flash kvb_flash;

/* ---- one side of a problem, K or V: stored_rows.c ---------------------------------------------------------------- */

/* Rows are used as they are stored: transform and head scale are applied to q (for K), or to the result (for V). */
typedef struct kvb_side {
    const kvb_view *view;
    kvb_load *load;          /* NULL: plain elements, or rows read by format->read */
    bool in_place;           /* rows can be used where they lie; if there is a load, only by dots() and sums() */
    kvb_elem elem;           /* of rows in place; else F32, as tiles have */
    kvb_transform transform; /* to be applied to q or to the result */
    bool head_scaled;        /* the same for view->head_scales */
    uint32_t width;          /* channels that are multiplied, a multiple of 16 */
    size_t row_bytes;        /* of a row in place; else 0 */
} kvb_side;

/* Channels of a padded row. */
static inline uint32_t kvb_padded(uint32_t dim)
{
    return (dim + 15) / 16 * 16;
}

/* Channels of a sum over V rows. If V is part of transformed K rows, all of K's: the transform mixes them. */
static inline uint32_t kvb_v_width(const kvb_problem *p)
{
    return kvb_padded(p->v_in_k && p->k_format->transform ? p->k_dim : p->v_dim);
}

/* For a product's fits(): do rows of this format have a multiple of `step` channels, at most `most`? If not, or if there
 * is a reason against the format, why gets a text that begins with `products` ("products of f16"). reason NULL: none. */
bool kvb_rows_fit(const kvb_format *format, const char *products, const char *reason, uint32_t step, uint32_t most,
                  uint32_t dim, char *why, size_t why_bytes);

/* Can rows of this format need a tile, in which they are converted to floats? */
bool kvb_side_tiled(const kvb_format *format, uint32_t dim);

/* Can rows be used where they lie? values: channels that are read as V: all, unless V lies in K's rows. */
bool kvb_side_in_place(const kvb_format *format, const kvb_vector *vector, uint32_t dim, uint32_t values);

/* width: channels that are multiplied, padded. */
void kvb_side_init(kvb_side *side, const kvb_vector *vector, const kvb_view *view, uint32_t values, uint32_t width);

/* The factor of KV head h: 1 without head scales. */
float kvb_side_factor(const kvb_side *side, uint32_t h);

/* ---- a group: query rows of a tile that meet the same cells of a block ------------------------------------------- */

typedef struct kvb_row_group {
    uint32_t kv_head;
    uint32_t n_rows, row[TILE_ROWS]; /* of the tile: token * heads + head */
    uint32_t n_cells, cell[BLOCK];
    const void *query[TILE_ROWS];          /* from the product's query() */
    float *sums[TILE_ROWS];                /* [width of V], so far */
    kvb_row_state *state[TILE_ROWS];       /* softmax so far */
    uint64_t visible[TILE_ROWS];           /* bit i: the row sees cell[i] */
    uint32_t ahead;                        /* cells from here to those that are read next; 0: there are none */
    uint32_t runs, run;                    /* read next: `run` cells from cell[i] + ahead on, for each i < runs */
    bool neighbours;                       /* cell[i] is cell[0] + i */
    bool turn;                             /* the group is part of a long run of cells, which is read in turns */
    const void *key[BLOCK], *value[BLOCK]; /* rows in place, or in a tile; set by the product */
} kvb_row_group;

/* Finds where the group's rows lie: at[i] becomes the address of the row of cell[i]. */
void kvb_rows_in_place(const kvb_flash *flash, const kvb_side *side, const kvb_row_group *g, const void **at);

/* The group's rows of one side, in place. found: `at` has their addresses already, as when V lies in K's rows. */
kvb_stored_rows kvb_side_rows(const kvb_flash *flash, const kvb_side *side, const kvb_row_group *g, const void **at,
                              bool found);

/* Converts the rows of cell[c] .. cell[c + n - 1] to floats. tile: [n][padded dim of the view], 64-byte aligned. at[i]
 * becomes the address of row i of the tile. */
void kvb_rows_in_tile(const kvb_side *side, const kvb_row_group *g, uint32_t c, uint32_t n, float *tile,
                      const void **at);

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Cells that only one token sees, where a block has few of them. They wait until they fill a block: pass.c. */
typedef struct kvb_waiting {
    uint32_t n, cell[BLOCK];
} kvb_waiting;

/* Working memory of a thread, 64-byte aligned. */
typedef struct kvb_workspace {
    char *queries;        /* [rows of a tile][query_bytes] */
    float *scores;        /* [rows of a tile][BLOCK]: of the group's rows; then their weights */
    char *scratch;        /* of the product */
    kvb_waiting *waiting; /* [tokens of a tile] */
    kvb_blocks *blocks;   /* of the tile at work */
} kvb_workspace;

/* Sums of a group that are still to be computed, from the weights in a workspace's scores. */
typedef struct kvb_late_sums {
    uint32_t n_rows, n_cells; /* n_rows 0: there are none */
    const void *value[BLOCK];
    float *sums[BESIDE_ROWS];
    kvb_row_ahead ahead;
} kvb_late_sums;

/* How q and K, and the weights and V, are multiplied. Each product has a file, with its kernel: product_*.c. */
typedef struct kvb_product {
    size_t loops; /* offset in kvb_loops of the product's loops: a level without them cannot run it */

    /* Can it multiply the rows of this problem? If not, why gets the reason. NULL: always. */
    bool (*fits)(const kvb_problem *problem, char *why, size_t why_bytes);

    /* Bytes of an encoded query row, and of scratch; multiples of 64. */
    size_t (*query_bytes)(const kvb_problem *problem);
    size_t (*scratch_bytes)(const kvb_problem *problem);

    /* Encodes q [k_dim] for KV head h, once for all blocks. Returns what is to be multiplied: encoded, or q itself. */
    const void *(*query)(const kvb_flash *flash, uint32_t h, const float *q, void *encoded);
    /* Decodes an encoded row: gives the q that rows as they are stored are multiplied with. NULL: q is not rounded. */
    void (*decoded)(const kvb_flash *flash, const void *encoded, double *q);
    /* w->scores[r][i]: group row r times K row of cell i. */
    void (*scores)(const kvb_flash *flash, const kvb_workspace *w, kvb_row_group *g);
    /* g->sums[r][c] += weight r of cell i times V row of cell i; the weights are w->scores. After scores(). */
    void (*sums)(const kvb_flash *flash, const kvb_workspace *w, kvb_row_group *g);

    /* Scores, weights and sums of a group together, for `blocks` blocks; if there are several, each row sees all of them,
     * and their cells are neighbours. False: nothing was done. NULL: scores() and sums() do all groups. */
    bool (*group)(const kvb_flash *flash, const kvb_workspace *w, const kvb_row_group *g, uint32_t blocks);

    /*
     * V of one group beside K of the next. fits_beside(): can the sums of this group wait for the next one? Both must
     * have the same numbers of rows and cells. beside() computes the late sums and the scores of g in one loop.
     * w->scores has the weights of the sums before, g's scores after. g NULL: only the sums. Both NULL: no such loop.
     */
    bool (*fits_beside)(const kvb_flash *flash, const kvb_row_group *g);
    void (*beside)(const kvb_flash *flash, const kvb_workspace *w, kvb_row_group *g, const kvb_late_sums *late);

    kvb_group_cost *cost;
} kvb_product;

/* Public for tests and benches. */
extern const kvb_product kvb_product_float, kvb_product_int8, kvb_product_bf16, kvb_product_f16, kvb_product_amx;

/* One call, shared by its threads. */
struct kvb_flash {
    const kvb_attend *args; /* runs of the mask are ascending */
    const kvb_product *product;
    const kvb_loops *loops;
    const kvb_prefetch *prefetch;
    kvb_work_plan plan;
    kvb_side k, v;          /* of one region; if V lies in K's rows, both have K's view */
    const kvb_flash *front; /* the same call over the front of the views; NULL: they have none */
    kvb_logits logits;
    size_t query_bytes;
    bool query_stays;    /* kvb_float_query_stays() */
    uint32_t unit_ahead; /* cells from a unit to the next KV head's; 0: no whole number, several tiles, or a front */
};

/* The rows of one side that the next turn reads, to be prefetched in bursts. */
static inline kvb_lookahead kvb_group_lookahead(const kvb_flash *flash, const kvb_side *side, const kvb_row_group *g)
{
    return (kvb_lookahead){side->view, g->cell, g->kv_head, g->runs, g->ahead, g->run, flash->prefetch->steadily, 0};
}

/* How the group's rows of one side are read in place. */
static inline const kvb_reading *kvb_group_reading(const kvb_flash *flash, const kvb_row_group *g, const kvb_side *side)
{
    const kvb_spread spread = g->turn ? KVB_SPREAD_LONG : g->neighbours ? KVB_SPREAD_SHORT : KVB_SPREAD_APART;
    return kvb_reading_of(flash->prefetch, spread, side->row_bytes, g->n_rows);
}

/*
 * What loops over rows in place prefetch: in a turn, and in pages if the next block is the next in memory, rows as many
 * cells ahead as the reading says; else those of the next block. Lines between here and there are prefetched again only
 * if the group reads them, too.
 */
static inline kvb_row_ahead kvb_group_row_ahead(const kvb_flash *flash, const kvb_row_group *g, const kvb_side *side)
{
    const kvb_reading *r = kvb_group_reading(flash, g, side);
    const size_t stride = side->view->cell_stride;
    uint32_t cells = r->ahead;
    if (cells && !g->turn && !(g->neighbours && g->ahead == BLOCK))
        cells = g->ahead;
    else if (cells && g->turn && g->runs > 1)
        cells = cells > 2 * g->runs ? cells / g->runs : 2;
    return (kvb_row_ahead){.bytes = cells * stride,
                           .near = r->near,
                           .again = r->again && g->turn && g->runs == 1 && cells % 8 == 0,
                           .by_cells = r->by_cells,
                           .sums_by_cells = r->sums_by_cells,
                           .page_row =
                               r->pages && g->turn && stride == side->row_bytes ? (uint32_t)side->row_bytes : 0};
}

/* ---- parts of the product of floats that others use: product_float.c --------------------------------------------- */

/* The arithmetic of a flash kernel that works in f32 throughout. */
void kvb_float_arithmetic(const kvb_problem *problem, kvb_arithmetic *arithmetic);

/* kvb_float_query() transforms q, multiplies it by the head scale, and pads it with zeros to the width of K, in `to`
 * [kvb_float_query_bytes()]. It returns `to`, or q itself if q is 64-byte aligned and kvb_float_query_stays(): nothing
 * of that is needed, and rows or cells are few. */
size_t kvb_float_query_bytes(const kvb_problem *problem);
bool kvb_float_query_stays(const kvb_flash *flash);
const float *kvb_float_query(const kvb_flash *flash, uint32_t h, const float *q, float *to);

/* Bytes of the tiles in which rows of K and V become floats, 0 if none is needed; byte where V's tile begins. */
size_t kvb_float_tiles_bytes(const kvb_problem *problem);
size_t kvb_float_v_tile(const kvb_problem *problem);

/* ---- one pass: pass.c -------------------------------------------------------------------------------------------- */

/* Softmax and sums of the rows of a tile so far; row r is token r / group and query head r % group of the tile. */
typedef struct kvb_partial {
    kvb_row_state *state; /* [rows] */
    float *sums;          /* [rows][width of V], 64-byte aligned */
} kvb_partial;

/* Encodes the query rows of a share's tile, goes over the share's blocks, and overwrites the partial with the result.
 * True: some rows met cells that they do not see. apart: none may; rows of a group then see the same cells. */
bool kvb_flash_pass(const kvb_flash *flash, const kvb_share *share, const kvb_workspace *w, const kvb_partial *partial,
                    bool apart);

/* ---- the order of additions -------------------------------------------------------------------------------------- */

/* A product that multiplies nothing: it passes on the cells that one row meets. */
typedef struct kvb_noting {
    kvb_product product; /* first, as its scores() and beside() find the kvb_noting by the product's address */
    uint32_t row;        /* of the tile */
    bool part;           /* the next cells begin a part */
    kvb_tile_take *take;
    void *ctx;
} kvb_noting;

/* For kvb_order.tiles: makes the passes over the shares of the row's unit. The product has the sizes, costs and
 * fits_beside() of the one that attends. */
void kvb_flash_tiles(kvb_noting *noting, const kvb_attend *args, uint32_t row);

/* ---- the call: flash.c. What a product's kernel is made of ------------------------------------------------------- */

bool kvb_flash_available(const kvb_product *product, char *why, size_t why_bytes);
bool kvb_flash_supports(const kvb_product *product, const kvb_problem *problem, char *why, size_t why_bytes);
size_t kvb_flash_scratch_bytes(const kvb_product *product, const kvb_problem *problem, uint32_t n_threads);
int kvb_flash_attend(const kvb_product *product, const kvb_attend *args);
/* kvb_kernel.round_query: encodes q as attend() does, and decodes that. For products that take no transformed rows. */
int kvb_flash_round_query(const kvb_product *product, const kvb_problem *problem, const kvb_view *k, uint32_t head,
                          const float *q, double *rounded);

/* The kernel kvb_kernel_NAME of product kvb_product_PRODUCT, and its functions, which call those above. The rest: members
 * that differ by kernel. */
#define KVB_FLASH_KERNEL(NAME, PRODUCT, ...)                                                                           \
    static bool PRODUCT##_available(char *why, size_t why_bytes)                                                       \
    {                                                                                                                  \
        return kvb_flash_available(&kvb_product_##PRODUCT, why, why_bytes);                                            \
    }                                                                                                                  \
    static bool PRODUCT##_supports(const kvb_problem *p, char *why, size_t why_bytes)                                  \
    {                                                                                                                  \
        return kvb_flash_supports(&kvb_product_##PRODUCT, p, why, why_bytes);                                          \
    }                                                                                                                  \
    static size_t PRODUCT##_scratch(const kvb_problem *p, uint32_t n_threads)                                          \
    {                                                                                                                  \
        return kvb_flash_scratch_bytes(&kvb_product_##PRODUCT, p, n_threads);                                          \
    }                                                                                                                  \
    static int PRODUCT##_attend(const kvb_attend *args)                                                                \
    {                                                                                                                  \
        return kvb_flash_attend(&kvb_product_##PRODUCT, args);                                                         \
    }                                                                                                                  \
    const kvb_kernel kvb_kernel_##NAME = {.flags = KVB_KERNEL_VECTOR | KVB_KERNEL_FRONTS,                              \
                                          .masks = KVB_MASKS_ALL,                                                      \
                                          .available = PRODUCT##_available,                                            \
                                          .supports = PRODUCT##_supports,                                              \
                                          .scratch_bytes = PRODUCT##_scratch,                                          \
                                          .attend = PRODUCT##_attend,                                                  \
                                          __VA_ARGS__}

/* The same of a product that rounds q. */
#define KVB_FLASH_ROUNDING_KERNEL(NAME, PRODUCT, ...)                                                                  \
    static int PRODUCT##_round(const kvb_problem *p, const kvb_view *k, uint32_t head, const float *q, double *to)     \
    {                                                                                                                  \
        return kvb_flash_round_query(&kvb_product_##PRODUCT, p, k, head, q, to);                                       \
    }                                                                                                                  \
    KVB_FLASH_KERNEL(NAME, PRODUCT, .round_query = PRODUCT##_round, __VA_ARGS__)

#endif
