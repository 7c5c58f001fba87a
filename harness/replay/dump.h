/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --dump DIR writes the first failing call to DIR/call.safetensors: its inputs, its outputs, and the exact outputs. The tensors:
 *   q [n_tok][heads][k_dim] f32
 *   k_stored, v_stored [kv_heads][cells][bytes]: codes, without side tables; k_decoded, v_decoded [kv_heads][cells][dim] f32;
 *     of latent rows K alone
 *   mask [n_tok][cells] bool
 *   out [n_tok][heads][v_dim] f32, lse [n_tok][heads] f32
 *   exact, bound [n_tok][heads][v_dim] f64, exact_lse, bound_lse [n_tok][heads] f64; NaN: no such row was checked
 * and as metadata the event, layer, scale, softcap, kernel and formats. Of a scan (kernels/scan.h):
 *   q, k, v, gate, beta, a, bias f32, as far as it has them, each with three dims
 *   from, to [n_tok][1] i64: slots; from -1: zeros, -2: the token before; to -1: none
 *   slots [n][1] i64: those, each once; states_before, states [n][heads][d_k d_v] f32: what lay in them before and after the call
 *   out [n_tok][heads][d_v] f32; exact, bound [n_tok][heads][d_v] f64; NaN: nothing is known of it
 * and as metadata the event, layer, recurrence and kernel.
 * Beside it lies difference.py, which writes the same as call.npz and shows the worst element.
 */
#ifndef KVB_DUMP_H
#define KVB_DUMP_H

#include "harness/replay/pass.h"

/* Makes the folder. -EEXIST, with why: it holds a call already; or what mkdir says. */
int kvb_dump_folder(const char *path, char *why, size_t why_bytes);
/* Writes the call that the pass made last; nothing if DIR has one. What fails is said on stderr. */
void kvb_dump(const kvb_pass *pass, const kvb_made *made);

/* Of a scan. */
typedef struct kvb_scan_dump {
    uint32_t layer;
    const kvb_scan *call;        /* as it was made, with out */
    const char *before;          /* its slots before the call; NULL: not known */
    const double *exact, *bound; /* [n_tok][heads][d_v] */
} kvb_scan_dump;
void kvb_dump_scan(const kvb_pass *pass, const kvb_scan_dump *dump);

#endif
