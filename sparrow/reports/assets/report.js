// Hover values and legends that switch lines on and off. Without this script the page shows all the same.
"use strict";
(() => {
  const number = (value) =>
    value === 0 || (Math.abs(value) >= 1e-4 && Math.abs(value) < 1e15)
      ? Number(value.toPrecision(6)).toLocaleString("en", { maximumFractionDigits: 10 })
      : value.toExponential(4);

  const fraction = (axis, value) =>
    axis.log ? Math.log(value / axis.low) / Math.log(axis.high / axis.low) : (value - axis.low) / (axis.high - axis.low);

  function prepare(figure) {
    const data = JSON.parse(figure.querySelector("script").textContent);
    const svg = figure.querySelector(":scope > svg");
    const [left, top, right, bottom] = data.box;
    const hidden = new Set();
    const across = (x) => left + fraction(data.x, x) * (right - left);

    for (const key of figure.querySelectorAll(".key")) {
      key.addEventListener("click", () => {
        const index = Number(key.dataset.series);
        const show = hidden.delete(index) || (hidden.add(index), false);
        key.setAttribute("aria-pressed", String(show));
        svg.querySelector(`[data-series="${index}"]`).classList.toggle("hidden", !show);
        clear();
      });
    }

    const rule = document.createElementNS(svg.namespaceURI, "path");
    rule.setAttribute("class", "rule hidden");
    svg.append(rule);
    const tip = document.createElement("div");
    tip.className = "tip hidden";
    figure.append(tip);

    function clear() {
      rule.classList.add("hidden");
      tip.classList.add("hidden");
    }

    // The point of a line that is nearest to a place on the x axis.
    function nearest(series, place) {
      let best = -1;
      for (let i = 0; i < series.x.length; i++) {
        if (series.y[i] === null) continue;
        if (best < 0 || Math.abs(across(series.x[i]) - place) < Math.abs(across(series.x[best]) - place)) best = i;
      }
      return best;
    }

    function show(event) {
      const frame = svg.getBoundingClientRect();
      const place = ((event.clientX - frame.left) / frame.width) * svg.viewBox.baseVal.width;
      const lines = [];
      let at = null;
      data.series.forEach((series, index) => {
        if (hidden.has(index)) return;
        const i = nearest(series, place);
        if (i < 0) return;
        lines.push([series, i]);
        const distance = Math.abs(across(series.x[i]) - place);
        if (at === null || distance < at.distance) at = { distance, x: series.x[i] };
      });
      if (at === null) return clear();
      const x = across(at.x);
      rule.setAttribute("d", `M${x} ${top}V${bottom}`);
      rule.classList.remove("hidden");
      tip.replaceChildren(head(`${data.x.title} ${number(at.x)}${epoch(at.x)}`));
      for (const [series, i] of lines) {
        // A line that has no point near the rule is left out.
        if (Math.abs(across(series.x[i]) - x) > 12) continue;
        tip.append(row(series, i, series.x[i] === at.x ? "" : ` at ${number(series.x[i])}`));
      }
      tip.classList.remove("hidden");
      const scale = frame.width / svg.viewBox.baseVal.width;
      const wanted = x * scale + 12;
      const room = figure.clientWidth - tip.offsetWidth;
      tip.style.left = `${Math.max(0, wanted > room ? x * scale - tip.offsetWidth - 12 : wanted)}px`;
      tip.style.top = `${svg.offsetTop + frame.height * 0.08}px`;
    }

    // The epochs that were made at a step, where the chart has their ends.
    function epoch(step) {
      const ends = data.epochs;
      if (!ends.length) return "";
      let done = ends.findIndex((end) => end > step);
      if (done < 0) done = ends.length;
      const first = done ? ends[done - 1] : 0;
      const length = done < ends.length ? ends[done] - first : first - (ends[done - 2] || 0);
      return `, epoch ${number(Number((done + (step - first) / length).toFixed(2)))}`;
    }

    function head(text) {
      const line = document.createElement("div");
      line.textContent = text;
      return line;
    }

    function row(series, i, where) {
      const line = document.createElement("div");
      const dot = document.createElement("i");
      dot.className = `c${series.color}`;
      const value = document.createElement("b");
      value.textContent = number(series.y[i]);
      const about = series.about[i] ? `, ${series.about[i]}` : "";
      line.append(dot, `${series.name} `, value, `${where}${about}`);
      return line;
    }

    svg.addEventListener("pointermove", show);
    svg.addEventListener("pointerdown", show);
    svg.addEventListener("pointerleave", clear);
  }

  for (const figure of document.querySelectorAll(".chart")) prepare(figure);
})();
