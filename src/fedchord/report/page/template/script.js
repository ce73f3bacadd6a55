"use strict";
// What the page can do beyond being read: sort tables, find clients, move lambda, copy. Without it nothing is missing.
document.documentElement.classList.add("js");

const number = (cell) => (cell.dataset.value === undefined ? NaN : Number(cell.dataset.value));

function order(column) {
  return (first, second) => {
    const [a, b] = [first.cells[column], second.cells[column]];
    const [x, y] = [number(a), number(b)];
    if (!Number.isNaN(x) && !Number.isNaN(y)) return x - y;
    if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
    return a.textContent.localeCompare(b.textContent, undefined, { numeric: true });
  };
}

function sort(table, head) {
  const body = table.tBodies[0];
  const down = head.ariaSort === "ascending" || (head.ariaSort !== "descending" && head.classList.contains("n"));
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.ariaSort = down ? "descending" : "ascending";
  const rows = [...body.rows].sort(order(head.cellIndex));
  const known = rows.filter((row) => !head.classList.contains("n") || !Number.isNaN(number(row.cells[head.cellIndex])));
  const rest = rows.filter((row) => !known.includes(row));
  body.append(...(down ? known.reverse() : known), ...rest);
}

for (const table of document.querySelectorAll("table.sortable")) {
  for (const head of table.tHead.rows[0].cells) {
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(table, head));
    head.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      sort(table, head);
    });
  }
}

for (const field of document.querySelectorAll("[data-find]")) {
  const section = document.getElementById(`${field.dataset.find}-clients`);
  const list = section.querySelector("details");
  const rows = list ? [...list.querySelector("tbody").rows] : [];
  const dots = [...section.querySelectorAll("[data-client]")];
  const told = section.querySelector(".find output");
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    const exact = rows.some((row) => row.cells[0].textContent.toLowerCase() === wanted);
    const fits = (name) => (exact ? name.toLowerCase() === wanted : name.toLowerCase().includes(wanted));
    const found = new Set();
    for (const row of rows) {
      row.hidden = wanted !== "" && !fits(row.cells[0].textContent);
      if (!row.hidden) found.add(row.cells[0].textContent);
    }
    for (const dot of dots) dot.classList.toggle("found", wanted !== "" && fits(dot.dataset.client));
    section.classList.toggle("finding", wanted !== "");
    if (list) list.open = wanted !== "";
    told.textContent = wanted === "" ? "" : `${found.size} client${found.size === 1 ? "" : "s"}`;
  });
}

for (const box of document.querySelectorAll("[data-slider]")) {
  const data = JSON.parse(box.querySelector("script").textContent);
  const drawing = box.parentNode.querySelector("svg");
  const field = box.querySelector("input");
  const told = (value) => (value === null ? "-" : data.percent ? (100 * value).toFixed(2) : value.toFixed(4));
  const across = (lam) => data.x[0] + lam * (data.x[1] - data.x[0]);
  const up = (value) => data.y[0] + value * (data.y[1] - data.y[0]);
  const show = () => {
    const at = Number(field.value);
    const moved = across(data.lambdas[at]) - across(data.lambdas[data.start]);
    box.querySelector("output").textContent = String(Number(data.lambdas[at].toFixed(3)));
    field.setAttribute("aria-valuetext", `lambda ${data.lambdas[at]}`);
    drawing.querySelector("[id$='-cursor']").setAttribute("transform", `translate(${moved} 0)`);
    data.series.forEach((one, place) => {
      const row = box.querySelector("tbody").rows[place];
      row.querySelector("[data-mean]").textContent = told(one.mean[at]);
      row.querySelector("[data-worst]").textContent = told(one.worst[at]);
      const dot = drawing.querySelector(`[id$='-at-${place}']`);
      if (!dot || one.mean[at] === null || one.mean[data.start] === null) return;
      dot.setAttribute("transform", `translate(${moved} ${up(one.mean[at]) - up(one.mean[data.start])})`);
    });
  };
  field.addEventListener("input", show);
  show();
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    const text = button.parentNode.querySelector("pre");
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(text); // no clipboard here: it is marked, to be copied by hand
      button.textContent = "marked";
    }
    setTimeout(() => (button.textContent = "copy"), 2000);
  });
}
