// SPDX-License-Identifier: Apache-2.0
// The explorer of a page of sizes. Models, formats and the engines' constants come as data from the program
// (sizing_page.c). The rules repeat those of engines.c and sizing.c in whole numbers; a test compares the two to the byte.
"use strict";
(() => {
    const data = JSON.parse(document.getElementById("sizes").textContent, (key, value) => typeof value === "number" ? BigInt(value) : value);
    const ask = data.ask, LIMIT = 1n << 64n, FAR = 1n << 40n, WHOLE = 1n, ROTATING = 2n, LATENT = 4n, STATES = 8n;
    const ceil = (x, by) => (x + by - 1n) / by, least = (a, b) => a < b ? a : b, most = (a, b) => a > b ? a : b;
    const up = (x, to) => ceil(x, to) * to;
    class Lack extends Error {}
    const check = (good, why) => { if (!good) throw new Lack(why); };

    // ---- one rank's part of a layer
    const rowOf = (format, elements) => !elements || elements % format.group ? 0n : elements / format.group * format.bytes + format.extra;
    const headRow = (format, elements) => {
        check(elements % format.group === 0n, `${format.name} stores groups of ${format.group}`);
        return rowOf(format, elements);
    };
    const layerRow = (g, q) => {
        if (g.kind === "state" || g.kind === "none") return 0n;
        if (g.kind === "latent") return headRow(q.k, g.latent);
        const whole = g.kv_heads >= q.tp;
        check((whole ? g.kv_heads % q.tp : q.tp % g.kv_heads) === 0n, `${g.kv_heads} KV heads are not divided by ${q.tp} ranks`);
        return (whole ? g.kv_heads / q.tp : 1n) * (headRow(q.k, g.k_dim) + headRow(q.v, g.v_dim));
    };
    const isLocal = (g) => g.kind === "window" || g.kind === "chunk";
    const grows = (m, g, q) => g.kind === "full" || g.kind === "latent" || g.kind === "pooled" ||
        isLocal(g) && m.max_context > 0n && g.window >= m.max_context && g.window >= q.context;
    const stateOf = (g, q, state, conv) => ceil(g.state, q.tp) * (g.state_f32 ? 4n : state) + ceil(g.conv, q.tp) * conv;
    const drafts = 1n + ask.spec_depth;

    // ---- engines: allocate() gives bytes of KV rows and of states
    const sum = (m, one) => m.groups.map(one).reduce((a, b) => ({kv: a.kv + b.kv, states: a.states + b.states}), {kv: 0n, states: 0n});
    const stored = (e, ...formats) => formats.forEach((f) => check(e.stored.includes(f.name), `it does not store ${f.name}`));
    const noSinks = (m) => check(m.groups.every((g) => !g.sinks), "no window that keeps the first tokens");

    const ideal = (m, q) => sum(m, (g) => {
        const plain = q.k.plain || m.dtype, local = g.kind === "cross" ? g.window : least(q.context, g.window + g.sinks);
        const rows = g.kind === "pooled" ? q.context / g.every : grows(m, g, q) ? q.context : local;
        return {kv: q.sequences * g.layers * rows * (layerRow(g, q) + g.index_row),
                states: q.sequences * g.layers * drafts * stateOf(g, q, ask.state || plain, plain)};
    });

    const llamaWhole = (q) => up(q.context * (ask.unified ? q.sequences : 1n), 256n);
    const llamaGrows = (m, g, q) => grows(m, g, q) || ask.whole || !m.llama_windows;
    const llamaCells = (m, g, q, e) => llamaGrows(m, g, q) ? llamaWhole(q) :
        up(least(g.window * (ask.unified ? q.sequences : 1n) + e.batch, llamaWhole(q)), 256n);
    const llama = (m, q, e) => {
        stored(e, q.k, q.v);
        check(q.tp === 1n && m.groups.every((g) => g.every < 2n), "llama.cpp divides the cache by layers, not by heads");
        noSinks(m);
        const streams = ask.unified ? 1n : q.sequences;
        return sum(m, (g) => {
            const cells = llamaCells(m, g, q, e);
            return {kv: streams * g.layers * cells * (layerRow(g, q) + rowOf(q.k, g.index)),
                    states: q.sequences * g.layers * drafts * stateOf(g, q, 4n, 4n)};
        });
    };

    const stateShare = (g, tp, widened, state, conv) => {
        const columns = g.conv_width > 1n ? g.conv_width - 1n : 1n, split = g.conv_groups && g.conv_groups % tp && g.conv_groups < tp;
        const channels = g.conv / columns + (split ? (tp - g.conv_groups) * g.conv_group_width : 0n);
        return ceil(g.state, tp) * (g.state_f32 ? 4n : state) + ceil(channels, tp) * (columns + (g.conv_drafts ? widened : 0n)) * conv;
    };
    const vllmBlocks = (s, q, e) => {
        const flight = e.batch * e.batches;
        if (s.grows) return ceil(q.context, s.block);
        if (s.g.kind === "window") return ceil(least(s.g.window + flight - 1n, q.context), s.block) + 1n;
        if (s.g.kind === "cross") return ceil(most(s.g.window, e.batch), s.block);
        return s.g.kind === "chunk" ? ceil(least(s.g.window + flight, q.context), s.block) : s.states + ask.spec_depth;
    };
    const vllmSpecs = (m, q, e) => {
        const specs = [], first = ask.block || 16n, whole = ask.whole && m.groups.some((g) => grows(m, g, q));
        let token = 0n, state = 0n;
        for (const g of m.groups) {
            const row = layerRow(g, q), page = stateShare(g, q.tp, ask.spec_depth, m.vllm_state, m.dtype);
            if (row || page) specs.push({g, layers: g.layers, grows: grows(m, g, q) || whole && isLocal(g), token: row, page});
            if (g.index) specs.push({g, layers: g.layers, grows: true, token: g.index_row, page: 0n});
            token = token || row;
            state = most(state, page);
        }
        const align = most(first, 16n), block = state && token ? most(first, align * ceil(state, align * token)) : first;
        for (const s of specs) Object.assign(s, {block, states: token ? e.states : 1n, page: block * (s.token || token) || s.page});
        return specs;
    };
    const vllm = (m, q, e) => {
        check(q.k === q.v, "vLLM stores K and V in one dtype");
        stored(e, q.k);
        check(m.groups.every((g) => g.heads % q.tp === 0n), "vLLM wants ranks that divide the query heads");
        noSinks(m);
        const specs = vllmSpecs(m, q, e);
        if (specs.length > 1 && !specs.every((s) => s.grows)) {
            check(!ask.whole, "vLLM needs its hybrid manager for these kinds of layers");
            const page = specs.map((s) => s.page).reduce(most), layers = specs.map((s) => s.layers);
            const fewest = layers.reduce(least), many = layers.reduce(most), size = many < fewest + ceil(fewest, 4n) ? many : fewest;
            for (const s of specs) {
                check(page % s.page === 0n, "vLLM cannot unify the pages");
                Object.assign(s, {block: s.block * (page / s.page), layers: up(s.layers, size), page});
            }
        }
        const bytes = {kv: 0n, states: 0n};
        for (const s of specs)
            bytes[s.g.kind === "state" ? "states" : "kv"] += q.sequences * s.layers * vllmBlocks(s, q, e) * s.page;
        return bytes;
    };

    const sglangRow = (m, g, q) => {
        const row = layerRow(g, q), indexer = m.groups.find((one) => one.index);
        if (!indexer) return row;
        if (g.kind !== "latent") return row + g.index * m.dtype;
        const scaled = q.k.name === "e4m3" ? g.latent_rank + 4n * (g.latent_rank / 128n) + 2n * (g.latent - g.latent_rank) : row;
        return scaled + indexer.index_row;
    };
    const sglang = (m, q, e) => {
        check(q.k === q.v, "SGLang stores K and V in one dtype");
        stored(e, q.k);
        check(m.groups.every((g) => g.sglang_knows && !(g.kind === "state" && ask.spec_depth)), "SGLang's pool for such states is not modelled");
        noSinks(m);
        check(m.groups.every((g) => !g.index || g.kind === "latent" || q.k.bytes === m.dtype), "SGLang's index beside such rows is not modelled");
        const held = m.groups.filter((g) => g.kind !== "state" && g.kind !== "none"), window = m.groups
            .map((g) => g.sglang_windowed ? g.window : 0n).reduce(most);
        check(held.length, "SGLang's pools for states alone are not modelled");
        const page = ask.block || (held.some((g) => g.index && g.kind === "latent") ? 64n : 1n), each = up(q.context, page);
        let whole = each * q.sequences, windows = 0n;
        if (window) {
            const kept = least(up(window, page) + page, each) * q.sequences, fewest = most(kept, up(window + page + 1n, page));
            whole = up(most(whole, ceil(fewest * 5n, 4n)), page);
            windows = whole * 4n / 5n / page * page;
        }
        const rows = held.map((g) => ((g.sglang_windowed ? windows : whole) + page) * (g.layers + g.readers) * sglangRow(m, g, q)).reduce((a, b) => a + b);
        const state = m.groups.map((g) => g.layers * stateShare(g, q.tp, 0n, m.sglang_state, 2n)).reduce((a, b) => a + b);
        if (!state) return {kv: rows, states: 0n};
        const kv = most(rows, ceil(3n * q.sequences * state, 9n) * 10n);
        return {kv, states: (kv * 9n / 10n / state + 1n) * state};
    };
    const trtllm = (m, q, e) => {
        check(q.k === q.v, "TensorRT-LLM stores K and V alike");
        stored(e, q.k);
        check(m.groups.every((g) => g.kind !== "state" && !g.index && !g.sinks), "TensorRT-LLM's pools for such layers are not modelled");
        return sum(m, (g) => ({kv: q.sequences * up(q.context, ask.block || 32n) * g.layers * layerRow(g, q), states: 0n}));
    };
    const mlx = (m, q, e) => {
        check(q.k === q.v, "mlx-lm stores K and V alike");
        stored(e, q.k);
        check(q.tp === 1n && ask.pp === 1n, "mlx-lm's ranks are not modelled");
        const caches = {window: WHOLE | ROTATING, latent: LATENT, state: STATES}, known = (g) => m.mlx & (caches[g.kind] || 0n);
        check(m.groups.every((g) => g.kind === "none" || !g.index && (g.kind === "full" || !g.sinks && known(g))),
            "mlx-lm's caches for such layers are not modelled");
        const cells = up(q.context, 256n), rotates = (g) => g.kind === "window" && m.mlx & ROTATING;
        check(q.k.plain || !m.groups.some((g) => rotates(g) || g.kind === "latent"), "mlx-lm cannot quantise such rows");
        check(!ask.spec_depth || m.groups.every((g) => g.kind !== "state"), "mlx-lm's states of drafts are not modelled");
        return sum(m, (g) => ({kv: q.sequences * (rotates(g) ? least(g.window - 1n + e.batch, cells) : cells) *
            g.layers * layerRow(g, q), states: q.sequences * g.layers * stateOf(g, q, 4n, m.dtype)}));
    };

    // ---- what passes need beside it
    const layerPeak = (m, q, e) => {
        const tokens = e.batch ? least(e.batch, q.context * q.sequences) : q.sequences;
        return tokens * (4n * m.hidden + 2n * ceil(m.intermediate, q.tp)) * m.dtype + q.sequences * ceil(m.vocab, q.tp) * 4n;
    };
    const vllmPeak = (m, q, {batch, max_seqs, sampler_bytes}) =>
        most(batch * (4n * m.hidden + 3n * ceil(m.intermediate, q.tp)) * m.dtype,
             batch * m.hidden * m.dtype + most(max_seqs, q.sequences) * m.vocab * sampler_bytes);
    const llamaPeak = (m, q, e) => {
        const attends = m.groups.filter((g) => g.kind === "latent" || g.kind === "full" || isLocal(g));
        const of = (some, factor) => some.map((g) => factor(g) * llamaCells(m, g, q, e)).reduce(most, 0n), one = () => 1n;
        const cells = [true, false].map((grow) => of(attends.filter((g) => llamaGrows(m, g, q) === grow), one)).reduce((a, b) => a + b);
        const mask = ask.no_flash ? 4n : 2n, scores = ask.no_flash ? of(attends, (g) => g.heads) : 0n;
        const tokens = least(e.batch, llamaWhole(q)), outputs = least(ask.outputs || q.sequences * drafts, tokens);
        const handed = ask.copies > 1n ? ask.copies * m.hidden * 4n : 0n, indexed = of(attends.filter((g) => g.index), one);
        const heads = 4n * (m.llama_heads + scores) + indexed * (mask + 4n);
        return most(outputs * (m.vocab + m.hidden) * 4n, tokens * (most(4n * m.llama_feed, heads) + (cells * mask + 4n) * ask.copies + handed));
    };
    const rules = {
        ideal: {allocate: ideal, beside: layerPeak},
        "llama.cpp": {allocate: llama, beside: llamaPeak},
        vllm: {allocate: vllm, beside: vllmPeak},
        sglang: {allocate: sglang, beside: (m, q, e) => e.beside[q.tp]},
        trtllm: {allocate: trtllm, beside: (m, q, e) => layerPeak(m, q, e) + ceil(trtllm(m, q, e).kv, 9n)},
        mlx: {allocate: mlx, beside: layerPeak},
    };

    // ---- the whole, and what fits
    const total = (m, name, q) => {
        const e = data.engines[name], rule = rules[name.split("@")[0]]; // of a version: "vllm@0.24"
        check(m.groups.every((g) => !(g.rare & ~e.knows)), "how it holds such rows is not modelled");
        const held = rule.allocate(m, q, e), beside = rule.beside(m, q, e), weights = m.weights[q.tp];
        const sum = held.kv + held.states + beside + (weights ?? 0n) + ask.runtime, margin = (sum * ask.margin + 99999n) / 100000n;
        check(sum + margin < LIMIT, "a size is above 64 bits");
        return {...held, beside: beside + ask.runtime + margin, total: weights === undefined ? null : sum + margin};
    };
    const budgetOf = (name, q) => ask.device && data.engines[name].fraction ? q.budget / 1000n * data.engines[name].fraction : q.budget;
    const fits = (m, name, q) => {
        try {
            return total(m, name, q).total <= budgetOf(name, q);
        } catch (error) {
            if (error instanceof Lack) return false;
            throw error;
        }
    };
    const largest = (m, name, q, key, cap) => {
        let good = 0n, bad = cap + 1n;
        while (bad - good > 1n) {
            const middle = good + (bad - good) / 2n;
            if (fits(m, name, {...q, [key]: middle})) good = middle;
            else bad = middle;
        }
        return good;
    };
    const size = (m, name, q) => {
        try {
            const all = total(m, name, q), limits = {};
            if (all.total !== null && q.budget)
                Object.assign(limits, {longest: largest(m, name, q, "context", m.max_context || FAR), most: largest(m, name, q, "sequences", FAR)});
            return {...all, ...limits};
        } catch (error) {
            if (error instanceof Lack) return {why: error.message};
            throw error;
        }
    };

    // ---- what is shown
    const $ = (id) => document.getElementById(id);
    const bytesText = (bytes) => {
        let value = Number(bytes), unit = 0;
        for (; value >= 1024 && unit < 5; unit++) value /= 1024;
        return `${unit ? value.toFixed(1) : value} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
    };
    const formatOf = (name) => data.formats.find((f) => f.name === name);
    // Reads an input: "32k" is 32768, as on the command line. A wrong input is reported, and nothing is computed.
    const typed = (id, what, read) => {
        const value = read($(id).value.trim());
        $(id).setAttribute("aria-invalid", value === null);
        check(value !== null, `${id === "budget" ? "memory of a rank" : id}: ${what} was expected, but it is "${$(id).value}".`);
        return value;
    };
    const whole = (id) => typed(id, "a whole number from 1 to 2^40, like 4096 or 32k,", (text) => {
        const [, digits, unit] = text.match(/^([0-9]{1,15})([kKmMgG]?)$/) ?? [], value = digits && BigInt(digits) << 10n * BigInt(" kmg".indexOf((unit || " ").toLowerCase()));
        return value && value <= FAR ? value : null;
    });
    // A device's memory is shown rounded; its exact value counts.
    const own = {bytes: ask.budget, text: String(Number((Number(ask.budget) / 2 ** 30).toFixed(2)) || "")};
    const memory = () => typed("budget", "a number of GiB up to 2^20", (text) => text === own.text ? own.bytes : text === "" ? 0n
        : /^[0-9]+([.][0-9]*)?$/.test(text) && Number(text) <= 2 ** 20 ? BigInt(Math.round(Number(text) * 2 ** 30)) : null);
    const asked = () => ({context: whole("context"), sequences: whole("sequences"), budget: memory(), k: formatOf($("k").value),
        v: formatOf($("v").value), tp: BigInt($("tp").value)});
    const PARTS = ["weights", "kv", "states", "beside"];
    const cellsOf = (m, s, ...keys) => keys.map((key) => {
            const value = s[key];
            const cell = document.createElement("td"), isCount = key === "longest" || key === "most";
            cell.className = "n";
            cell.dataset.key = key;
            if (value !== undefined && value !== null) {
                cell.dataset.value = value;
                cell.textContent = !isCount ? bytesText(value) : value === FAR && !(key === "longest" && m.max_context) ? "unbounded" : value;
            } else if (key === "total" && !s.why) {
                cell.textContent = "?";
            }
            return cell;
        });
    const fitOf = (s, q, budget) => {
        const cell = document.createElement("td");
        cell.dataset.key = "fits";
        cell.className = s.over ? "no" : q.budget && s.total !== null ? "yes" : "";
        cell.textContent = !q.budget ? "" : s.over ? `does not fit: ${bytesText(s.total - budget)} over` : s.total === null ? "weights?" : "fits";
        return cell;
    };
    const barOf = (m, s, q, scale) => {
        const cell = document.createElement("td"), bar = document.createElement("div");
        bar.className = "bar";
        PARTS.forEach((part, i) => {
            const piece = document.createElement("span"), bytes = part === "weights" ? m.weights[q.tp] ?? 0n : s[part];
            piece.style.cssText = `width: ${Number(bytes) / scale * 100}%; background: var(--s${i})`;
            piece.title = `${part}: ${bytesText(bytes)}`;
            bar.append(piece);
        });
        if (s.over) bar.classList.add("over");
        cell.append(bar);
        return cell;
    };
    const show = () => {
        const m = data.models[$("model").selectedIndex], names = Object.keys(data.engines);
        let q;
        try {
            q = asked();
        } catch (error) {
            if (!(error instanceof Lack)) throw error;
            $("engines").replaceChildren();
            $("said").textContent = error.message;
            return;
        }
        const sizes = names.map((name) => size(m, name, q));
        const scale = Math.max(Number(q.budget), ...sizes.filter((s) => !s.why).map((s) => Number(s.total ?? s.kv + s.states + s.beside))) || 1;
        $("engines").replaceChildren(...names.map((name, i) => {
            const row = document.createElement("tr"), head = document.createElement("th"), s = sizes[i];
            s.over = q.budget && s.total !== null && s.total > budgetOf(name, q);
            head.textContent = name;
            row.dataset.engine = name;
            row.append(head);
            if (s.why) {
                const why = document.createElement("td");
                why.colSpan = 8;
                why.textContent = s.why;
                row.dataset.why = s.why;
                row.append(why);
            } else {
                row.append(fitOf(s, q, budgetOf(name, q)), ...cellsOf(m, s, "total"), barOf(m, s, q, scale),
                    ...cellsOf(m, s, "most", "longest", "kv", "states", "beside"));
            }
            return row;
        }));
        const weights = m.weights[q.tp];
        const takes = ask.device ? names.filter((name) => data.engines[name].fraction).map((name) =>
            ` ${name} takes ${Number(data.engines[name].fraction) / 10} % of its memory.`) : [];
        $("said").textContent = `Weights: ${weights === undefined ? "not known" : bytesText(weights)} on a rank.` +
            (m.max_context && q.context > m.max_context ? ` The context is beyond the ${m.max_context} of the model's config.` : "") + takes.join("");
    };

    $("parts").replaceChildren(...PARTS.flatMap((part, i) => {
        const key = document.createElement("span");
        key.className = "key";
        key.style.background = `var(--s${i})`;
        return [key, part === "kv" ? "KV" : part];
    }));
    const fill = (id, names) => $(id).replaceChildren(...names.map((name) => new Option(name, name)));
    fill("model", data.models.map((m) => m.name));
    fill("k", data.formats.map((f) => f.name));
    fill("v", data.formats.map((f) => f.name));
    fill("tp", data.ranks.map(String));
    const reset = () => {
        const m = data.models[$("model").selectedIndex];
        $("k").value = m.k;
        $("v").value = m.v;
        show();
    };
    $("context").value = data.models[0].context;
    $("sequences").value = data.models[0].sequences;
    $("tp").value = ask.tp;
    $("budget").value = own.text;
    const sliders = {context: (x) => Math.round(2 ** (x / 4)), sequences: (x) => Math.round(2 ** (x / 4)), budget: (x) => 2 ** (x / 4)};
    const steps = (text) => Math.round(4 * Math.log2(Math.max(1, parseFloat(text) * 1024 ** Math.max(0, " kmg".indexOf(text.trim().slice(-1).toLowerCase())) || 1)));
    for (const [id, valueOf] of Object.entries(sliders)) {
        const slider = $(`${id}-slider`);
        const follow = () => { slider.value = steps($(id).value); };
        follow();
        slider.addEventListener("input", () => { $(id).value = Number(valueOf(Number(slider.value)).toFixed(2)); show(); });
        $(id).addEventListener("input", () => { follow(); show(); });
    }
    $("k").addEventListener("input", () => { $("v").value = $("k").value; });
    for (const id of ["k", "v", "tp"]) $(id).addEventListener("input", show);
    $("model").addEventListener("input", reset);
    reset();
    $("explorer").hidden = false;
})();
