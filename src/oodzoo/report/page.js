(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("js");

  // Theme: that of the system until the button is used. A page opened from a file may have no storage.
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const recall = () => { try { return localStorage.getItem("oodzoo-theme"); } catch { return null; } };
  const keep = (theme) => { try { localStorage.setItem("oodzoo-theme", theme); } catch { /* not remembered */ } };
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const label = () => { button.textContent = dark() ? "Light" : "Dark"; };
  if (["light", "dark"].includes(recall())) root.dataset.theme = recall();
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    keep(root.dataset.theme);
    label();
  });
  system.addEventListener("change", label);
  label();

  // Sorting: numbers by their full value, text with numbers in natural order, intervals by their low end and
  // then the high one; missing values come last.
  const collator = new Intl.Collator(undefined, { numeric: true });
  const sort = (header) => {
    const table = header.closest("table");
    const body = table.tBodies[0];
    const at = header.cellIndex;
    const cells = [...body.rows].map((row) => row.cells[at]);
    const numeric = cells.some((cell) => cell.dataset.v !== undefined);
    const now = header.getAttribute("aria-sort");
    const down = now ? now === "ascending" : numeric && at > 0;
    const value = (cell) => (cell.dataset.v === undefined ? null : Number(cell.dataset.v));
    cells.sort((a, b) => {
      if (!numeric) return (down ? -1 : 1) * collator.compare(a.textContent, b.textContent);
      const [x, y] = [value(a), value(b)];
      if (x === null || y === null) return (x === null) - (y === null);
      const apart = x - y || Number(a.dataset.w ?? 0) - Number(b.dataset.w ?? 0);
      return down ? -apart : apart;
    });
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...cells.map((cell) => cell.parentElement));
  };
  for (const control of document.querySelectorAll(".sort")) {
    control.addEventListener("click", () => sort(control.closest("th")));
  }

  for (const control of document.querySelectorAll(".more")) {
    const all = control.textContent;
    control.addEventListener("click", () => {
      const open = document.getElementById(control.getAttribute("aria-controls")).classList.toggle("open");
      control.setAttribute("aria-expanded", String(open));
      control.textContent = open ? "Show the first 30 rows" : all;
    });
  }

  // Without a script, all options of a chooser are shown.
  for (const chooser of document.querySelectorAll(".chooser")) {
    const select = chooser.querySelector("select");
    const options = chooser.querySelectorAll(".option");
    const choose = () => options.forEach((option, at) => { option.hidden = at !== select.selectedIndex; });
    select.addEventListener("change", choose);
    select.closest(".choose").hidden = false;
    choose();
  }

  // A browser may refuse the clipboard; then the command is selected, to be copied by hand.
  for (const control of document.querySelectorAll(".copy")) {
    const before = control.innerHTML;
    control.hidden = false;
    control.addEventListener("click", async () => {
      const code = control.parentElement.querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
        control.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        control.textContent = "Selected";
      }
      setTimeout(() => { control.innerHTML = before; }, 2000);
    });
  }

  // Tooltips of marks. The title of a chart would cover them; its text remains as the label.
  for (const title of document.querySelectorAll("svg > title")) title.remove();
  const tip = document.getElementById("tip");
  const place = (x, y) => {
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - box.width - 8))}px`;
    tip.style.top = `${y - box.height - 12 > 8 ? y - box.height - 12 : y + 18}px`;
  };
  const show = (event) => {
    const mark = event.target instanceof Element ? event.target.closest("[data-tip]") : null;
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.dataset.tip;
    place(event.clientX, event.clientY);
  };
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
})();
