"use strict";
// Time plots on canvas: zoom, move, read values. Long stretches are drawn as the smallest and largest value of every
// pixel column, so that no peak is hidden.
(() => {
  const INK = "#1b1f23", SOFT = "#5b6570", LINE = "#dfe3e8";
  const LOOK = {
    measured: { color: "#222222", width: 1.7, dash: [] },
    simulated: { color: "#d55e00", width: 1.5, dash: [6, 3] },
    residual: { color: "#0072b2", width: 1.2, dash: [] },
    input: { color: "#3f6f5b", width: 1.2, dash: [] },
  };
  const HEIGHT = { output: 190, residual: 96, input: 96 };
  const FEWEST = 4; // samples that stay in view

  function numbers(text, Kind) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Kind(bytes.buffer);
  }

  function clock(about) {
    const stamps = about.stamps ? numbers(about.stamps, Float64Array) : null;
    const at = stamps ? (i) => stamps[i] : (i) => about.start + i * about.step;
    // Index of the last sample at or before a time, by halving.
    function before(time) {
      let low = 0, high = about.count - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (at(middle) <= time) low = middle; else high = middle - 1;
      }
      return low;
    }
    return { at, before, count: about.count, first: at(0), last: Math.max(about.end, at(about.count - 1)) };
  }

  function ticks(low, high, most) {
    const rough = (high - low) / Math.max(most, 1), power = 10 ** Math.floor(Math.log10(rough));
    const steps = [10, 5, 2, 1, 0.5, 0.2, 0.1].map((factor) => factor * power);
    const multiples = (step) => {
      const found = [];
      for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step && found.length < 50; k++) found.push(k * step);
      return found;
    };
    // The smallest step that leaves room for labels, or a smaller one that gives three of them.
    const wide = steps.filter((step) => step >= rough).length - 1;
    const step = steps.slice(Math.max(wide, 0)).find((size) => multiples(size).length >= 3) || steps[steps.length - 1];
    return { found: multiples(step), digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
  }

  function words(value, digits) {
    const size = Math.abs(value);
    if (size !== 0 && (size >= 1e6 || size < 1e-4) && digits > 4 || size >= 1e7) return value.toExponential(2);
    return value.toFixed(Math.min(digits, 8)).replace(/^-(0(\.0*)?)$/, "$1");
  }

  class TimePlot {
    constructor(figure) {
      const data = JSON.parse(document.getElementById(figure.dataset.plot).textContent);
      this.canvas = figure.querySelector("canvas");
      this.readout = figure.querySelector(".readout");
      this.clock = clock(data.clock);
      this.panels = data.panels;
      for (const panel of this.panels)
        for (const series of panel.series) series.values = numbers(series.values, Float32Array);
      this.view = [this.clock.first, this.clock.last];
      this.pointers = new Map();
      this.pointer = null;
      this.listen(figure);
      new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
      this.draw();
    }

    // The part of the clock that is shown, inside of the record and never shorter than a few samples.
    show(from, to) {
      const { first, last, count } = this.clock;
      const least = Math.min(last - first, (FEWEST * (last - first)) / Math.max(count - 1, 1));
      const span = Math.min(Math.max(to - from, least), last - first);
      const middle = (from + to) / 2;
      const start = Math.min(Math.max(to - from < least ? middle - span / 2 : from, first), last - span);
      this.view = [start, start + span];
      this.draw();
    }

    zoom(factor, around) {
      const [from, to] = this.view;
      this.show(around - (around - from) * factor, around + (to - around) * factor);
    }

    move(share) {
      const [from, to] = this.view, by = share * (to - from);
      const { first, last } = this.clock;
      const kept = Math.min(Math.max(by, first - from), last - to);
      this.show(from + kept, to + kept);
    }

    all() { this.show(this.clock.first, this.clock.last); }

    whole() {
      const span = this.clock.last - this.clock.first;
      return this.view[1] - this.view[0] >= span * (1 - 1e-9);
    }

    act(name) {
      const middle = (this.view[0] + this.view[1]) / 2;
      if (name === "in") this.zoom(0.5, middle);
      if (name === "out") this.zoom(2, middle);
      if (name === "left") this.move(-0.3);
      if (name === "right") this.move(0.3);
      if (name === "all") this.all();
    }

    time(event) {
      const box = this.canvas.getBoundingClientRect();
      const share = (event.clientX - box.left - this.left) / (box.width - this.left - this.right);
      return this.view[0] + Math.min(Math.max(share, 0), 1) * (this.view[1] - this.view[0]);
    }

    listen(figure) {
      figure.querySelectorAll("button").forEach((button) => button.addEventListener("click", () => this.act(button.dataset.do)));
      const on = (name, action, options) => this.canvas.addEventListener(name, action, options);
      on("wheel", (event) => {
        if (event.deltaY > 0 && this.whole()) return; // nothing left to zoom out of: the page scrolls
        event.preventDefault();
        this.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), this.time(event));
      }, { passive: false });
      on("dblclick", () => this.all());
      on("keydown", (event) => {
        const known = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", Home: "all", 0: "all" };
        if (!(event.key in known)) return;
        event.preventDefault();
        this.act(known[event.key]);
      });
      on("pointerdown", (event) => this.press(event));
      on("pointermove", (event) => this.drag(event));
      on("pointerup", (event) => this.release(event));
      on("pointercancel", (event) => { this.pointers.delete(event.pointerId); this.selection = null; this.draw(); });
      on("pointerleave", () => { this.pointer = null; this.readout.textContent = "\u00a0"; this.draw(); });
    }

    press(event) {
      if (event.pointerType === "mouse" && event.button !== 0) return;
      try { this.canvas.setPointerCapture(event.pointerId); } catch { /* a pointer that is gone already */ }
      this.pointers.set(event.pointerId, event);
      const time = this.time(event);
      const selects = event.pointerType === "mouse" && !event.shiftKey;
      this.selection = selects ? [time, time] : null;
      this.pressed = { at: event.timeStamp, x: event.clientX, alone: this.pointers.size === 1 };
    }

    // Two short touches of one finger at one place show the whole record, as a double click does.
    tap(event) {
      const { at, x, alone } = this.pressed, last = this.lastTap;
      const short = alone && event.timeStamp - at < 300 && Math.abs(event.clientX - x) < 10;
      this.lastTap = short ? { at: event.timeStamp, x } : null;
      if (short && last && event.timeStamp - last.at < 400 && Math.abs(x - last.x) < 30) this.all();
    }

    drag(event) {
      const before = this.pointers.get(event.pointerId);
      if (before && this.selection) this.selection[1] = this.time(event);
      else if (before && this.pointers.size === 1) this.slide(before, event);
      else if (before && this.pointers.size === 2) this.pinch(before, event);
      if (before) this.pointers.set(event.pointerId, event);
      this.pointer = this.time(event);
      this.say();
      this.draw();
    }

    slide(before, event) {
      const width = this.canvas.clientWidth - this.left - this.right;
      this.move((before.clientX - event.clientX) / width);
    }

    pinch(before, event) {
      const other = [...this.pointers.values()].find((pointer) => pointer.pointerId !== event.pointerId);
      const [was, is] = [before, event].map((pointer) => Math.max(Math.abs(pointer.clientX - other.clientX), 10));
      this.zoom(was / is, (this.time(event) + this.time(other)) / 2);
    }

    release(event) {
      this.pointers.delete(event.pointerId);
      if (event.pointerType === "touch" && this.pressed) this.tap(event);
      if (!this.selection) return;
      const [from, to] = [Math.min(...this.selection), Math.max(...this.selection)];
      this.selection = null;
      const width = this.canvas.clientWidth - this.left - this.right;
      if (((to - from) / (this.view[1] - this.view[0])) * width > 5) this.show(from, to); else this.draw();
    }

    say() {
      if (this.pointer === null) return;
      const i = this.clock.before(this.pointer + (this.view[1] - this.view[0]) * 1e-9);
      const parts = [`t = ${words(this.clock.at(i), 3)} s`];
      for (const panel of this.panels)
        for (const series of panel.series) {
          const value = series.values[i];
          const name = panel.kind === "output" ? `${panel.label} ${series.name}` : series.name;
          if (Number.isFinite(value)) parts.push(`${name} ${words(value + series.offset, 3)} ${panel.unit}`.trim());
        }
      this.readout.textContent = parts.join(" \u00b7 ");
    }

    draw() {
      const width = this.canvas.clientWidth;
      if (!width) return;
      const small = width < 520, gap = 8, foot = 40, head = 20; // a strip above each panel holds its label
      this.left = small ? 50 : 66;
      this.right = 10;
      const heights = this.panels.map((panel) => HEIGHT[panel.kind] * (small ? 0.8 : 1));
      const height = heights.reduce((sum, one) => sum + one + head + gap, foot - gap);
      const scale = Math.max(2, window.devicePixelRatio || 1);
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
      this.canvas.style.height = `${height}px`;
      const pen = this.canvas.getContext("2d");
      pen.scale(scale, scale);
      pen.fillStyle = "#ffffff";
      pen.fillRect(0, 0, width, height);
      pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
      const frame = { left: this.left, right: width - this.right };
      const across = ticks(this.view[0], this.view[1], small ? 4 : 8);
      let top = head, drawn = 0;
      this.panels.forEach((panel, index) => {
        const box = { ...frame, top, bottom: top + heights[index] };
        drawn += this.drawPanel(pen, panel, box, across);
        top = box.bottom + gap + head;
      });
      this.drawTime(pen, frame, top - gap - head, across);
      this.drawOverlays(pen, frame, top - gap - head);
      Object.assign(this.canvas.dataset, { from: this.view[0], to: this.view[1], drawn });
    }

    x(time, box) {
      return box.left + ((time - this.view[0]) / (this.view[1] - this.view[0])) * (box.right - box.left);
    }

    // Samples in view, and one on either side, so that lines leave the panel at its edges.
    shown() {
      const from = this.clock.before(this.view[0]);
      return [from, Math.min(this.clock.before(this.view[1]) + 1, this.clock.count - 1)];
    }

    limits(panel) {
      const [from, to] = this.shown();
      let low = Infinity, high = -Infinity;
      for (const { values, offset } of panel.series)
        for (let i = from; i <= to; i++) {
          const value = values[i] + offset;
          if (value < low) low = value;
          if (value > high) high = value;
        }
      if (!(low <= high)) return [-1, 1];
      if (panel.kind === "residual") low = Math.min(low, 0), high = Math.max(high, 0);
      const room = (high - low) * 0.07 || Math.abs(high) * 0.07 || 1;
      return [low - room, high + room];
    }

    drawPanel(pen, panel, box, across) {
      const [low, high] = this.limits(panel);
      const y = (value) => box.bottom - ((value - low) / (high - low)) * (box.bottom - box.top);
      const down = ticks(low, high, Math.max(2, Math.floor((box.bottom - box.top) / 30)));
      pen.strokeStyle = LINE;
      pen.lineWidth = 1;
      pen.beginPath();
      for (const value of down.found) pen.moveTo(box.left, y(value)), pen.lineTo(box.right, y(value));
      for (const time of across.found) pen.moveTo(this.x(time, box), box.top), pen.lineTo(this.x(time, box), box.bottom);
      pen.stroke();
      pen.fillStyle = SOFT;
      pen.textAlign = "right";
      pen.textBaseline = "middle";
      for (const value of down.found) pen.fillText(words(value, down.digits), box.left - 5, y(value));
      pen.save();
      pen.beginPath();
      pen.rect(box.left, box.top, box.right - box.left, box.bottom - box.top);
      pen.clip();
      let drawn = 0;
      for (const series of panel.series) drawn += this.drawSeries(pen, series, box, y);
      pen.restore();
      pen.strokeStyle = SOFT;
      pen.strokeRect(box.left, box.top, box.right - box.left, box.bottom - box.top);
      this.drawLabel(pen, panel, box);
      return drawn;
    }

    drawLabel(pen, panel, box) {
      const text = panel.unit ? `${panel.label} (${panel.unit})` : panel.label;
      pen.textAlign = "left";
      pen.textBaseline = "top";
      const parts = panel.series.length > 1 ? panel.series.map((series) => [series.name, LOOK[series.kind]]) : [];
      pen.fillStyle = INK;
      pen.fillText(text, box.left, box.top - 16);
      let at = box.left + 16 + pen.measureText(text).width;
      for (const [name, look] of parts) {
        pen.strokeStyle = look.color;
        pen.lineWidth = look.width + 0.5;
        pen.setLineDash(look.dash);
        pen.beginPath();
        pen.moveTo(at, box.top - 9);
        pen.lineTo(at + 22, box.top - 9);
        pen.stroke();
        pen.setLineDash([]);
        pen.fillText(name, at + 26, box.top - 16);
        at += 40 + pen.measureText(name).width;
      }
      pen.lineWidth = 1;
    }

    drawSeries(pen, series, box, y) {
      const [from, to] = this.shown(), look = LOOK[series.kind];
      const columns = Math.floor((box.right - box.left) * 2);
      if (to - from + 1 > 2 * columns) return this.fillColumns(pen, series, box, y, columns);
      pen.strokeStyle = look.color;
      pen.lineWidth = look.width;
      pen.lineJoin = "round";
      pen.setLineDash(look.dash);
      pen.beginPath();
      const drawn = this.trace(pen, series, box, y);
      pen.stroke();
      pen.setLineDash([]);
      return drawn;
    }

    trace(pen, series, box, y) {
      const [from, to] = this.shown();
      let pen_down = false;
      for (let i = from; i <= to; i++) {
        const value = series.values[i] + series.offset;
        if (!Number.isFinite(value)) { pen_down = false; continue; }
        const place = [this.x(this.clock.at(i), box), y(value)];
        if (pen_down) pen.lineTo(...place); else pen.moveTo(...place), pen.lineTo(place[0] + 0.1, place[1]);
        pen_down = true;
      }
      return to - from + 1;
    }

    // A bar per half pixel from the smallest to the largest value in it, joined to the bar before; bars are much
    // faster to draw than one long line. A veil over the measured signal lets it be seen below the simulated one.
    fillColumns(pen, series, box, y, columns) {
      const [from, to] = this.shown(), look = LOOK[series.kind], values = series.values;
      const perColumn = (to - from + 1) / columns, width = (box.right - box.left) / columns;
      pen.fillStyle = look.color;
      pen.globalAlpha = series.kind === "simulated" ? 0.6 : 1;
      let last = NaN, drawn = 0;
      for (let column = 0; column < columns; column++) {
        const end = Math.min(from + Math.floor((column + 1) * perColumn), to + 1);
        let low = last, high = last, some = false;
        for (let i = from + Math.floor(column * perColumn); i < end; i++) {
          const value = values[i];
          if (!Number.isFinite(value)) continue;
          if (!(value >= low)) low = value;
          if (!(value <= high)) high = value;
          last = value;
          some = true;
        }
        if (!some) { last = NaN; continue; }
        const top = y(high + series.offset), bottom = y(low + series.offset);
        pen.fillRect(box.left + column * width, top - look.width / 2, width + 0.1, bottom - top + look.width);
        drawn++;
      }
      pen.globalAlpha = 1;
      return drawn;
    }

    drawTime(pen, frame, bottom, across) {
      pen.fillStyle = SOFT;
      pen.textAlign = "center";
      pen.textBaseline = "top";
      for (const time of across.found) {
        const text = words(time, across.digits), half = pen.measureText(text).width / 2;
        pen.fillText(text, Math.min(this.x(time, frame), frame.right + this.right - half), bottom + 5);
      }
      pen.fillText("time (s)", (frame.left + frame.right) / 2, bottom + 22);
    }

    drawOverlays(pen, frame, bottom) {
      if (this.selection) {
        const [from, to] = this.selection.map((time) => this.x(time, frame));
        pen.fillStyle = "rgba(0, 114, 178, 0.15)";
        pen.fillRect(Math.min(from, to), 0, Math.abs(to - from), bottom);
      } else if (this.pointer !== null) {
        pen.strokeStyle = SOFT;
        pen.setLineDash([2, 3]);
        pen.beginPath();
        pen.moveTo(this.x(this.pointer, frame), 0);
        pen.lineTo(this.x(this.pointer, frame), bottom);
        pen.stroke();
        pen.setLineDash([]);
      }
    }
  }

  document.querySelectorAll(".timeplot").forEach((figure) => new TimePlot(figure));
  window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
})();
