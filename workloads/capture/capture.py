# SPDX-License-Identifier: Apache-2.0
"""Writes a call of attention or of a scan to a file that `kvbench judge` takes. One function, beside the call:

    from capture import capture, capture_scan
    out = scaled_dot_product_attention(q, k, v, is_causal=True)
    capture("calls", q=q, k=k, v=v, out=out, layout="bhsd", causal="upper-left", scale="1/sqrt(d)", arithmetic="flash-bf16")

    out, state = chunk_gated_delta_rule(q, k, v, g, beta, output_final_state=True)
    capture_scan("calls", "delta", q=q, k=k, v=v, gate=g, beta=beta, out=out, final_state=state, layout="bshd", state_layout="kv",
                 scale="1/sqrt(d)", arithmetic="chunk64-bf16")

Needs NumPy; tensors of torch and arrays of JAX and MLX are taken, too. Environment, for whole runs:
KVBENCH_CAPTURE=FOLDER (unset: nothing is written), KVBENCH_CAPTURE_EVERY=N (every N-th call, usual 1), KVBENCH_CAPTURE_CALLS=N (at
most, usual 16), KVBENCH_CAPTURE_MB=N (of one call at most, usual 64).
"""
import json
import os
import struct

import numpy as np

_CODES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
          "int8": "I8", "uint8": "U8", "int16": "I16", "uint16": "U16", "int32": "I32", "uint32": "U32", "int64": "I64", "uint64": "U64",
          "bool": "BOOL"}
_calls = {}


def _bytes(x):
    """An array of any library: its type's code, its shape, its bytes in row-major order."""
    kind = str(x.dtype).rsplit(".", maxsplit=1)[-1]
    if hasattr(x, "detach"):  # torch: types that NumPy lacks pass as integers of the same width
        x = x.detach().cpu().contiguous()
        if kind == "bfloat16":
            x = x.view(__import__("torch").int16)
        elif kind.startswith("float8"):
            x = x.view(__import__("torch").uint8)
        x = x.numpy()
    elif kind == "bfloat16" and type(x).__module__.startswith("mlx"):
        x, kind = np.array(x.astype(__import__("mlx.core").core.float32)), "float32"  # exact
    x = np.ascontiguousarray(np.asarray(x))
    if kind not in _CODES:
        raise TypeError(f"capture: arrays of {kind} have no place in a safetensors file")
    return _CODES[kind], list(x.shape), x.tobytes()


def _write(path, arrays, said):
    header, blobs, at = {"__metadata__": {k: v if isinstance(v, str) else json.dumps(v) for k, v in said.items()}}, [], 0
    for name, (code, shape, blob) in arrays.items():
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".tmp", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.writelines(blobs)
    os.replace(path + ".tmp", path)


def _folder(folder, name, every, calls):
    """The folder for this call of the place, and the call's number. None: the call is not written."""
    folder = folder or os.environ.get("KVBENCH_CAPTURE")
    if not folder:
        return None, 0
    number = _calls[name] = _calls.get(name, -1) + 1
    every = every or int(os.environ.get("KVBENCH_CAPTURE_EVERY", "1"))
    most = calls or int(os.environ.get("KVBENCH_CAPTURE_CALLS", "16"))
    return (None if number % every or number // every >= most else folder), number


def _keep(folder, name, number, arrays, said, megabytes):
    arrays = {n: x for n, x in arrays.items() if x is not None}
    bytes_of = {"float64": 8, "int64": 8, "float32": 4, "int32": 4}
    size = sum(int(np.prod(x.shape)) * bytes_of.get(str(x.dtype).rsplit(".", maxsplit=1)[-1], 2) for x in arrays.values())
    if size > (megabytes or float(os.environ.get("KVBENCH_CAPTURE_MB", "64"))) * 2**20:
        return None
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{name}-{number}.safetensors")
    _write(path, {n: _bytes(x) for n, x in arrays.items()}, said)
    return path


def capture(folder=None, *, q, k, v, out, q_rounded=None, name="call", heads=None, every=None, calls=None, megabytes=None, lse=None, sinks=None,
            mask=None, lengths=None, cu_seqlens_q=None, cu_seqlens_k=None, block_table=None, k_scale=None, v_scale=None, **said):
    """Writes FOLDER/NAME-N.safetensors, and returns its path. None: this call is not written.

    name: of the place, such as "layer3"; each has a count of its own. said: layout, causal, scale, arithmetic and other keys of
    `kvbench judge --keys`. heads: with layout bhsd or bshd, at most so many KV heads, with their query heads. A call that is still
    larger than megabytes is not written.
    """
    folder, number = _folder(folder, name, every, calls)
    if not folder:
        return None
    axis = {"bhsd": 1, "bshd": 2}.get(said.get("layout"))
    if heads and axis and heads < k.shape[axis]:
        each = q.shape[axis] // k.shape[axis]

        def part(x, n):
            return None if x is None else x[:, :n] if axis == 1 else x[:, :, :n]

        q, out, k, v = part(q, heads * each), part(out, heads * each), part(k, heads), part(v, heads)
        q_rounded = part(q_rounded, heads * each)
        lse = None if lse is None else lse[:, : heads * each]  # both layouts have heads first there
        sinks = None if sinks is None else sinks[: heads * each]
        k_scale, v_scale = (x[:heads] if x is not None and getattr(x, "ndim", 0) == 1 and x.shape[0] > 1 else x for x in (k_scale, v_scale))
    arrays = {"q": q, "q_rounded": q_rounded, "k": k, "v": v, "out": out, "lse": lse, "sinks": sinks, "mask": mask, "lengths": lengths,
              "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "block_table": block_table, "k_scale": k_scale, "v_scale": v_scale}
    return _keep(folder, name, number, arrays, said, megabytes)


def capture_scan(folder, recurrence, *, v, out, q=None, k=None, gate=None, beta=None, a=None, bias=None, initial_state=None, final_state=None,
                 lengths=None, cu_seqlens=None, name="scan", every=None, calls=None, megabytes=None, **said):
    """The same for a scan: recurrence is mamba1, mamba2, lightning, delta or conv (v: x, a: taps).

    initial_state: if the call changes it in place, a copy from before the call.
    """
    folder, number = _folder(folder, name, every, calls)
    if not folder:
        return None
    arrays = {"q": q, "k": k, "v": v, "out": out, "gate": gate, "beta": beta, "a": a, "bias": bias, "initial_state": initial_state,
              "final_state": final_state, "lengths": lengths, "cu_seqlens": cu_seqlens}
    return _keep(folder, name, number, arrays, {"recurrence": recurrence} | said, megabytes)
