for (const section of document.querySelectorAll("section.table")) {
  const body = section.querySelector("tbody"), rows = [...body.rows], heads = [...section.querySelectorAll("th")];
  section.querySelector("input").addEventListener("input", event => {
    const wanted = event.target.value.toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
  heads.forEach((head, i) => head.querySelector("button").addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") !== "descending", number = head.classList.contains("n");
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = row => row.cells[i].dataset.value ?? row.cells[i].textContent;
    rows.sort((a, b) => (number ? value(a) - value(b) : value(a).localeCompare(value(b))) * (down ? -1 : 1));
    body.append(...rows);
  }));
}
for (const flame of document.querySelectorAll(".flame")) {
  const bars = [...flame.children];
  flame.addEventListener("click", event => {
    const bar = event.target.closest("button");
    if (!bar) return;
    const left = +bar.dataset.left, wide = +bar.dataset.wide;
    for (const each of bars) {
      const from = Math.max(left, +each.dataset.left), to = Math.min(left + wide, +each.dataset.left + +each.dataset.wide);
      each.hidden = to - from < wide / 1e4;
      each.style.left = `${100 * (from - left) / wide}%`;
      each.style.width = `${100 * (to - from) / wide}%`;
    }
  });
}
