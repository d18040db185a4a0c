"""CSS and JavaScript of the page of a run.

The style has a light and a dark scheme. The script sorts and filters tables, and zooms the flame.
"""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ground: #fff; --text: #1c1e21; --soft: #5c636b; --line: #d9dde2; --p0: #8a63d2; --p1: #2f7fd8;
  --p2: #1a9a8a; --p3: #d9742b; --p4: #5f9e2f; --p5: #b9c0c8; }
@media (prefers-color-scheme: dark) { :root { --ground: #16181b; --text: #e6e8ea; --soft: #9aa2ab; --line: #363b41; --p0: #a98bea;
  --p1: #5ca2f0; --p2: #3dbdac; --p3: #f0934f; --p4: #86c456; --p5: #4a5159; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1200px; padding: 1rem; background: var(--ground); color: var(--text);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
code { font: .9em ui-monospace, monospace; overflow-wrap: anywhere; }
.soft { color: var(--soft); } .scroll { overflow-x: auto; }
.stack { display: flex; height: 1.6rem; border-radius: 4px; overflow: hidden; } .stack span { min-width: 0; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin: .5rem 0; } .legend i { display: inline-block; width: .8em; height: .8em;
  border-radius: 2px; margin-right: .35em; }
svg { display: block; width: 100%; background: color-mix(in srgb, var(--line) 40%, transparent); border-radius: 4px; }
.bar { display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 4fr) 4.5rem; gap: .6rem; align-items: center; margin: .2rem 0; }
.bar b { font-weight: 400; overflow-wrap: anywhere; } .bar div { display: flex; } .bar div span { height: .9rem; }
.bar em { font-style: normal; text-align: right; }
.flame { position: relative; overflow: hidden; } .flame button { position: absolute; height: 21px; padding: 0; text-indent: .3rem;
  border: 0; border-radius: 2px; overflow: hidden; white-space: nowrap; text-align: left; font: 12px/21px ui-monospace, monospace;
  color: #10131a; cursor: pointer; box-shadow: inset -1px -1px 0 var(--ground); } .flame button i { font-style: normal; opacity: .75; }
.flame button.user { background: var(--p5); color: var(--text); } .strip p { margin: .6rem 0 .2rem; overflow-wrap: anywhere; }
details { margin: .3rem 0; } summary { cursor: pointer; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .15rem .8rem; margin: .4rem 0 .8rem; } dd { margin: 0;
  overflow-wrap: anywhere; } dt { color: var(--soft); } dt.taken { color: var(--p2); font-weight: 600; }
ol { padding-left: 1.4rem; } ol li { margin-bottom: .8rem; }
pre { margin: .2rem 0; padding: .4rem .6rem; border: 1px solid var(--line); border-radius: 4px; white-space: pre-wrap;
  overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th button { all: unset; cursor: pointer; font-weight: 600; } th button:focus-visible { outline: 2px solid var(--p1); }
th[aria-sort=ascending] button::after { content: " \\25b2"; } th[aria-sort=descending] button::after { content: " \\25bc"; }
td.n, th.n { text-align: right; white-space: nowrap; } input { font: inherit; width: 100%; max-width: 24rem; padding: .3rem .5rem;
  margin-bottom: .5rem; background: transparent; color: inherit; border: 1px solid var(--line); border-radius: 4px; }
"""

SCRIPT = """
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
"""
