/* SPDX-License-Identifier: Apache-2.0 */
/* Tables that can be sorted and filtered, and the command of a row. Without scripts the page shows the whole tables. */
"use strict";
(() => {
  /* Units that a number in a filter may have, as factors of the unit of data-value. */
  const units = {
    "": 1, ns: 1, us: 1e3, "µs": 1e3, ms: 1e6, s: 1e9, "%": 0.01, x: 1, "×": 1,
    b: 1, kib: 1024, mib: 1024 ** 2, gib: 1024 ** 3, "gb/s": 1, "gflop/s": 1, "gop/s": 1,
  };
  const comparisons = {
    "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b, "=": (a, b) => a === b,
  };

  /* Returns a test of a cell. "< 50 us" compares numbers; other filters are words that must all be in the cell. */
  function filterOf(text) {
    const parts = /^\s*(<=|>=|<|>|=)\s*([0-9.]+(?:e[-+]?[0-9]+)?)\s*(\S*)\s*$/i.exec(text);
    const factor = parts ? units[parts[3].toLowerCase()] : undefined;
    if (factor !== undefined) {
      const bound = Number(parts[2]) * factor;
      return (cell) => cell.dataset.value !== undefined && comparisons[parts[1]](Number(cell.dataset.value), bound);
    }
    const words = text.toLowerCase().split(/\s+/);
    return (cell) => words.every((word) => textOf(cell).toLowerCase().includes(word));
  }

  const textOf = (cell) => cell.dataset.text ?? cell.textContent;

  /* Sorts numbers by value, words by letters. Cells without a number always come last. */
  function compare(a, b, direction) {
    const [x, y] = [a.dataset.value, b.dataset.value];
    if (x !== undefined && y !== undefined) return direction * (Number(x) - Number(y));
    if (a.classList.contains("n") || b.classList.contains("n")) return (x === undefined) - (y === undefined);
    return direction * textOf(a).localeCompare(textOf(b), "en", { numeric: true });
  }

  function element(name, properties) {
    return Object.assign(document.createElement(name), properties);
  }

  function sortable(table, head, column, show) {
    const button = element("button", { type: "button", textContent: head.firstChild.textContent, title: head.title });
    head.firstChild.replaceWith(button);
    button.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => compare(a.cells[column], b.cells[column], descending ? -1 : 1));
      table.tBodies[0].append(...rows);
      show();
    });
  }

  /* A field under each heading; a choice where a column of words has few different ones. Gives what shows the rows that
     match, in their order: the first ones of many, unless all are asked for. prepare() gets each row that is shown. */
  function filterable(table, prepare) {
    const rows = [...table.tBodies[0].rows];
    const heads = [...table.tHead.rows[0].cells];
    const found = element("div", { className: "found" });
    const count = element("span", {});
    const more = element("button", { type: "button", textContent: "show all", hidden: true });
    let most = 200;
    count.setAttribute("role", "status");
    found.append(count, more);
    table.parentElement.before(found);
    more.addEventListener("click", () => {
      most = Infinity;
      apply();
    });
    const fields = heads.map((head, column) => {
      const cells = rows.map((row) => row.cells[column]);
      const words = [...new Set(cells.map(textOf))];
      const isChoice = words.length <= 12 && !cells[0].classList.contains("n");
      const field = element(isChoice ? "select" : "input", isChoice ? {} : { type: "search", size: 6 });
      if (isChoice) {
        field.append(element("option", { value: "", textContent: "all" }));
        for (const word of words.sort()) field.append(element("option", { value: word, textContent: word }));
      }
      field.setAttribute("aria-label", "filter " + head.textContent);
      field.addEventListener("input", apply);
      head.append(field);
      return field;
    });
    function apply() {
      const tests = fields.map((field) =>
        field.value.trim() === "" ? null : field.tagName === "SELECT" ? (cell) => textOf(cell) === field.value : filterOf(field.value));
      let matching = 0;
      for (const row of table.tBodies[0].rows) {
        const matches = tests.every((test, column) => test === null || test(row.cells[column]));
        matching += matches ? 1 : 0;
        row.hidden = !matches || matching > most;
        if (!row.hidden) prepare(row);
      }
      more.hidden = matching <= most;
      count.textContent = matching === rows.length && more.hidden ? "" :
        matching + " of " + rows.length + " rows" + (more.hidden ? " " : ", the first " + most + " shown ");
    }
    apply();
    return apply;
  }

  /* A line at the foot of the window: the command of a row. */
  const shown = element("pre", { id: "command" });
  shown.setAttribute("role", "status");
  document.body.append(shown);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") shown.textContent = "";
  });
  document.addEventListener("click", (event) => {
    if (event.target.classList.contains("again")) {
      const command = event.target.closest("tr").dataset.again;
      shown.textContent = command;
      getSelection().selectAllChildren(shown);
      navigator.clipboard?.writeText(command).catch(() => undefined); /* if it may not be copied, it is at least selected */
    } else if (!shown.contains(event.target)) {
      shown.textContent = "";
    }
  });

  /* Gives a row its button. */
  function repeatable(row) {
    const first = row.cells[0];
    if (row.dataset.again === undefined || first.dataset.text !== undefined) return;
    first.dataset.text = first.textContent;
    const button = element("button", { type: "button", className: "again", textContent: "copy" });
    button.setAttribute("aria-label", "command that runs this row again");
    first.prepend(button);
  }

  for (const table of document.querySelectorAll("table.data")) {
    const show = filterable(table, repeatable);
    [...table.tHead.rows[0].cells].forEach((head, column) => sortable(table, head, column, show));
  }
})();
