// Finds faults of the layout: overlapping text, and text outside of its chart or of the page.
() => {
  const faults = [];
  const shown = [];
  const add = (box, text, home, inSvg) => {
    if (box.width > 1 && box.height > 1 && text.trim()) shown.push({ box, text: text.trim(), home, inSvg });
  };
  for (const text of document.querySelectorAll("svg text")) {
    if (!text.checkVisibility()) continue;
    const box = text.getBoundingClientRect();
    const svg = text.closest("svg");
    const frame = svg.getBoundingClientRect();
    add(box, text.textContent, svg, true);
    if (box.left < frame.left - 2 || box.right > frame.right + 2) faults.push(`outside of its chart: ${text.textContent}`);
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const element = node.parentElement;
    if (!element.checkVisibility() || element.closest("svg, script, style, .unseen, .skip")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const scrolls = element.closest(".scroll, nav, pre");
    for (const box of range.getClientRects()) {
      add(box, node.textContent, scrolls, false);
      if (!scrolls && (box.right > innerWidth + 1 || box.left < -1)) faults.push(`outside of the page: ${node.textContent}`);
    }
  }
  // Text in a scrolling region can only overlap text in the same region.
  const room = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left);
  const rise = (a, b) => Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
  for (let i = 0; i < shown.length; i += 1) {
    for (let j = i + 1; j < shown.length; j += 1) {
      const [a, b] = [shown[i], shown[j]];
      if (a.home !== b.home && ((a.home && !a.inSvg) || (b.home && !b.inSvg))) continue;
      if (room(a.box, b.box) > 1.5 && rise(a.box, b.box) > 2.5) faults.push(`overlap: ${a.text} | ${b.text}`);
    }
  }
  return faults.slice(0, 20);
}
