// The timeline: GPUs, tasks and budgets on a canvas. Every row is drawn by how much of each pixel is
// covered, so single groups and hours of them take the same way.
const timeline = (() => {
  const canvas = $('timeline');
  const paint = canvas.getContext('2d');
  const AXIS = 26, GPU = 40, TASK = 28, LANE = 46, OTHER = 20, PAD = 8;
  let width = 0, left = 0, rows = [], height = 0;

  const span = () => state.view[1] - state.view[0];
  const inner = () => Math.max(1, width - left - PAD);
  const x = ns => left + (ns - state.view[0]) / span() * inner();
  const time = px => state.view[0] + (px - left) / inner() * span();

  function layout() {
    rows = [];
    let y = AXIS;
    const add = row => { rows.push({...row, y}); y += row.h; };
    const apart = DATA.exact && DATA.gpus > 1;  // bins are of all GPUs together
    for (let gpu = 0; gpu < (apart ? DATA.gpus : 1); gpu++) {
      add({kind: 'gpu', gpu, h: GPU, name: apart ? `GPU ${gpu}` : DATA.gpus > 1 ? `${DATA.gpus} GPUs` : 'GPU'});
    }
    for (const task of shown()) add({kind: 'task', task, h: TASK, name: task.name});
    for (const reserve of RESERVES.filter(kept)) {
      const name = reserve.name.replace(/^@/, '');
      add({kind: 'budget', reserve, h: LANE, name: left < 100 ? name : `budget ${name}`});
    }
    if (OTHERS.length) y += 8;
    for (const track of OTHERS) add({kind: 'other', track, h: OTHER, name: track.name});
    height = y + 6;
  }

  function fit() {
    width = canvas.parentElement.clientWidth - 32;
    if (innerWidth <= 560) width = canvas.parentElement.clientWidth - 22;
    left = width < 560 ? 76 : 128;
    layout();
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    paint.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  // The first of a list, sorted by its ends, that ends after `ns`.
  function firstAfter(list, ns, end) {
    let low = 0, high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (end(list[middle]) <= ns) low = middle + 1; else high = middle;
    }
    return low;
  }

  // How much of each pixel these stretches cover.
  function cover(list, start, end, keep = () => true) {
    const pixels = new Float32Array(Math.ceil(inner()));
    const scale = inner() / span(), from = state.view[0];
    for (let i = firstAfter(list, from, end); i < list.length; i++) {
      const item = list[i];
      if (start(item) >= state.view[1]) break;
      if (keep(item)) coverOne(pixels, (start(item) - from) * scale, (end(item) - from) * scale, 1);
    }
    return pixels;
  }

  function coverOne(pixels, a, b, amount) {
    a = Math.max(0, a);
    b = Math.min(pixels.length, b);
    for (let p = Math.floor(a); p < b; p++) pixels[p] += amount * (Math.min(b, p + 1) - Math.max(a, p));
  }

  function coverBins(bins) {
    const pixels = new Float32Array(Math.ceil(inner()));
    const scale = inner() / span();
    const first = Math.max(0, Math.floor(state.view[0] / WIDTH)), last = Math.min(BINS, Math.ceil(state.view[1] / WIDTH));
    for (let i = first; i < last; i++) {
      if (bins[i]) coverOne(pixels, (i * WIDTH - state.view[0]) * scale, ((i + 1) * WIDTH - state.view[0]) * scale, bins[i] / WIDTH);
    }
    return pixels;
  }

  function total(task, wanted) {
    const bins = new Float64Array(BINS);
    for (const [cause, series] of task.waits) if (wanted(cause)) for (let i = 0; i < BINS; i++) bins[i] += series[i];
    return bins;
  }

  const budgetCause = () => TASKS.length;
  const runsOf = (task, gpu) => DATA.exact
    ? cover(task.runs, run => run.start, run => run.end, run => gpu === undefined || run.gpu === gpu)
    : coverBins(gpu === undefined ? task.busy : task.busy.map(ns => ns / DATA.gpus));
  const waitsOf = task => DATA.exact
    ? cover(task.waiting, s => s[0], s => s[1]) : coverBins(total(task, cause => cause !== budgetCause()));
  const shortOf = task => DATA.exact
    ? cover(task.short, s => s[0], s => s[1]) : coverBins(total(task, cause => cause === budgetCause()));

  // Columns of the same height go together.
  function columns(pixels, bottom, size, base) {
    for (let p = 0; p < pixels.length;) {
      const h = level(pixels[p], size);
      const from = base ? base[p] : 0;
      let q = p + 1;
      while (q < pixels.length && level(pixels[q], size) === h && (!base || base[q] === from)) q++;
      if (h > 0) paint.fillRect(left + p, bottom - from - h, q - p, h);
      if (base && h > 0) for (let i = p; i < q; i++) base[i] += h;
      p = q;
    }
  }
  const level = (covered, size) => covered <= 0 ? 0 : Math.max(1, Math.round(Math.min(1, covered) * size * 2) / 2);

  function strip(pixels, y, size, fill) {
    paint.fillStyle = fill;
    for (let p = 0; p < pixels.length;) {
      const covered = Math.min(1, Math.ceil(pixels[p] * 4) / 4);
      let q = p + 1;
      while (q < pixels.length && Math.min(1, Math.ceil(pixels[q] * 4) / 4) === covered) q++;
      if (covered > 0) {
        paint.save();
        paint.globalAlpha *= .35 + .65 * covered;
        paint.fillRect(left + p, y, q - p, size);
        paint.restore();
      }
      p = q;
    }
  }

  function hatch(tint) {
    const tile = document.createElement('canvas');
    tile.width = tile.height = 6;
    const pen = tile.getContext('2d');
    pen.strokeStyle = tint;
    pen.lineWidth = 2;
    pen.beginPath();
    for (const shift of [-6, 0, 6]) { pen.moveTo(shift - 1, 7); pen.lineTo(shift + 7, -1); }
    pen.stroke();
    return paint.createPattern(tile, 'repeat');
  }

  function dim(task) { paint.globalAlpha = state.hot === null || state.hot === task.index ? 1 : .18; }

  function drawGpu(row) {
    const base = new Float32Array(Math.ceil(inner()));
    const bottom = row.y + 30;
    paint.fillStyle = css('--idle');
    paint.fillRect(left, row.y + 4, inner(), 26);
    for (const task of shown()) {
      dim(task);
      paint.fillStyle = css(`--t${task.index % 8}`);
      columns(runsOf(task, row.gpu), bottom, 26, base);
    }
    paint.globalAlpha = 1;
    for (const [task, gpu, since] of DATA.unfinished) {
      if (gpu !== row.gpu || state.hidden.has(task)) continue;
      paint.fillStyle = hatch(css(`--t${task % 8}`));
      const from = Math.max(left, x(since)), to = Math.min(x(DURATION), left + inner());
      if (to > from) paint.fillRect(from, row.y + 4, to - from, 26);
    }
    if (DATA.exact) {
      edges(shown().flatMap(task => task.runs).filter(run => run.gpu === row.gpu), row.y + 4, 26);
      for (const task of shown()) {
        dim(task);
        paint.fillStyle = css('--soft');
        let last = -1;
        for (let i = firstAfter(task.runs, state.view[0], run => run.end); i < task.runs.length; i++) {
          const run = task.runs[i], px = Math.round(x(run.dispatched));
          if (run.start > state.view[1]) break;
          if (run.gpu === row.gpu && px > last && px >= left && px <= left + inner()) paint.fillRect(px, row.y + 32, 1, 6);
          last = Math.max(last, px);
        }
      }
      paint.globalAlpha = 1;
    }
  }

  // A hairline where one group follows another, once they are wide enough.
  function edges(runs, y, size) {
    const visible = runs.filter(run => run.end > state.view[0] && run.start < state.view[1]);
    if (visible.length * 4 > inner()) return;
    paint.fillStyle = css('--card');
    for (const run of visible) {
      const px = Math.round(x(run.start));
      if (px > left && x(run.end) - px > 3) paint.fillRect(px, y, 1, size);
    }
  }

  function drawTask(row) {
    const task = row.task, tint = css(`--t${task.index % 8}`);
    dim(task);
    paint.fillStyle = tint;
    columns(runsOf(task), row.y + 17, 14);
    if (DATA.exact) edges(task.runs, row.y + 3, 14);
    const alpha = paint.globalAlpha;
    paint.globalAlpha = alpha * .5;
    strip(waitsOf(task), row.y + 19, 5, tint);
    paint.globalAlpha = alpha;
    const short = shortOf(task);
    paint.globalAlpha = alpha * .22;
    strip(short, row.y + 18, 7, css('--short'));
    paint.globalAlpha = alpha;
    strip(short, row.y + 18, 7, hatch(css('--short')));
    paint.globalAlpha = 1;
  }

  function drawBudget(row) {
    const {reserve} = row;
    const values = reserve.points.map(point => point[1]);
    const high = Math.max(reserve.capacity, ...values), low = Math.min(0, ...values);
    const y = value => row.y + 5 + (high - value) / (high - low || 1) * (LANE - 12);
    paint.strokeStyle = css('--line');
    paint.beginPath();
    paint.moveTo(left, y(0) + .5);
    paint.lineTo(left + inner(), y(0) + .5);
    paint.stroke();
    paint.save();
    paint.beginPath();
    paint.rect(left, row.y, inner(), LANE);
    paint.clip();
    const {line, band, dense} = steps(reserve, state.view[0], Math.min(DURATION, state.view[1]), x, y);
    const ink = tint => {
      if (dense) {
        paint.fillStyle = tint;
        paint.globalAlpha = .55;
        for (const [column, [a, b]] of band) paint.fillRect(column, a, 1, Math.max(1, b - a));
        paint.globalAlpha = 1;
        return;
      }
      paint.strokeStyle = tint;
      paint.beginPath();
      line.forEach(([a, b], i) => i ? paint.lineTo(a, b) : paint.moveTo(a, b));
      paint.stroke();
    };
    paint.lineWidth = 1.4;
    ink(css('--accent'));
    paint.beginPath();
    paint.rect(left, y(0) + 1, inner(), LANE);
    paint.clip();
    ink(css('--debt'));
    paint.restore();
    paint.lineWidth = 1;
  }

  function drawOther(row) {
    const slices = row.track.slices;
    paint.fillStyle = css('--idle');
    paint.fillRect(left, row.y + 3, inner(), 12);
    for (let shade = 0; shade < 4; shade++) {  // by name, so that what follows on something else is seen
      paint.globalAlpha = 1 - shade * .22;
      strip(cover(slices, s => s[0], s => s[1], s => s[3] % 4 === shade), row.y + 3, 12, css(row.track.gpu ? '--accent' : '--soft'));
    }
    paint.globalAlpha = 1;
    edges(slices.map(s => ({start: s[0], end: s[1]})), row.y + 3, 12);
  }

  function drawAxis() {
    const unit = span() >= 2e9 ? 1e9 : span() >= 2e6 ? 1e6 : 1e3;
    const name = unit === 1e9 ? 's' : unit === 1e6 ? 'ms' : 'µs';
    paint.textBaseline = 'middle';
    paint.textAlign = 'center';
    const marks = ticks((state.view[0] + DATA.start) / unit, (state.view[1] + DATA.start) / unit, inner() / 90);
    const step = marks.length > 1 ? marks[1] - marks[0] : 1;
    const places = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step) - 1e-9)));
    for (const mark of marks) {
      const px = Math.round(x(mark * unit - DATA.start)) + .5;
      if (px < left) continue;
      paint.strokeStyle = css('--grid');
      paint.beginPath();
      paint.moveTo(px, AXIS - 5);
      paint.lineTo(px, height);
      paint.stroke();
      paint.fillStyle = css('--soft');
      const text = `${mark.toFixed(places)} ${name}`;
      const half = paint.measureText(text).width / 2;
      paint.fillText(text, Math.max(left + half, Math.min(px, width - half)), 11);
    }
  }

  function drawLabels() {
    paint.textAlign = 'left';
    paint.textBaseline = 'middle';
    for (const row of rows) {
      const y = row.y + ({gpu: 17, task: 13, other: 9}[row.kind] || LANE / 2);
      let from = 0;
      if (row.kind === 'task') {
        paint.fillStyle = css(`--t${row.task.index % 8}`);
        paint.fillRect(0, y - 5, 4, 10);
        from = 9;
        dim(row.task);
      }
      paint.fillStyle = css(row.kind === 'budget' || row.kind === 'other' ? '--soft' : '--text');
      paint.fillText(clipped(row.name, left - from - 8), from, y);
      paint.globalAlpha = 1;
    }
  }

  // The middle goes first: names often differ at their ends.
  function clipped(text, room) {
    const line = Array.from(text).slice(0, 200).map(c => c < ' ' ? ' ' : c);
    if (paint.measureText(line.join('')).width <= room) return line.join('');
    const start = line.slice(0, Math.ceil(line.length / 2)), end = line.slice(Math.ceil(line.length / 2));
    const joined = () => start.join('') + '…' + end.join('');
    while (start.length && paint.measureText(joined()).width > room) (start.length > end.length ? start.pop() : end.shift());
    return joined();
  }

  function drawMarks() {
    paint.strokeStyle = css('--mark');
    paint.setLineDash([4, 3]);
    for (const [at] of DATA.marks) {
      if (at < state.view[0] || at > state.view[1]) continue;
      paint.beginPath();
      paint.moveTo(Math.round(x(at)) + .5, AXIS - 6);
      paint.lineTo(Math.round(x(at)) + .5, height);
      paint.stroke();
    }
    paint.setLineDash([]);
  }

  function drawSelection() {
    if (!state.selection) return;
    const edge = px => Math.max(left, Math.min(left + inner(), px));
    const a = edge(x(state.selection[0] * WIDTH)), b = edge(x(Math.min(state.selection[1] * WIDTH, DURATION)));
    paint.fillStyle = css('--shade');
    paint.fillRect(left, AXIS - 6, a - left, height);
    paint.fillRect(b, AXIS - 6, left + inner() - b, height);
    paint.fillStyle = css('--accent');
    paint.fillRect(a - 1, AXIS - 6, 2, height);
    paint.fillRect(b - 1, AXIS - 6, 2, height);
    paint.fillRect(a, AXIS - 6, b - a, 3);
  }

  function draw() {
    fit();
    paint.clearRect(0, 0, width, height);
    paint.font = `12.5px ${getComputedStyle(document.body).fontFamily}`;
    drawAxis();
    const draws = {gpu: drawGpu, task: drawTask, budget: drawBudget, other: drawOther};
    for (const row of rows) draws[row.kind](row);
    drawMarks();
    drawSelection();
    drawLabels();
    const [a, b] = state.view;
    canvas.setAttribute('aria-label', `Timeline from ${instant(a, b - a)} to ${instant(b, b - a)}: ` +
      `what each of ${shown().length} tasks did; the tables below have the numbers`);
  }

  // What is under a point, in words.
  function describe(px, py) {
    const ns = time(px);
    if (px < left || ns < 0 || ns > DURATION) return '';
    const lines = [instant(ns, span())];
    const near = DATA.marks.filter(([at]) => Math.abs(x(at) - px) < 4).slice(0, 3);
    for (const [, text] of near) lines.push(text);
    const row = rows.find(r => py >= r.y && py < r.y + r.h);
    if (!row) return lines.join('\n');
    if (row.kind === 'budget') {
      const place = firstAfter(row.reserve.points, ns, point => point[0]) - 1;
      lines.push(place < 0 ? 'no budget yet' : `budget ${row.reserve.thinned ? 'about ' : ''}${duration(row.reserve.points[place][1])} of ${duration(row.reserve.capacity)}`);
    } else if (row.kind === 'other') {
      const slice = row.track.slices[firstAfter(row.track.slices, ns, s => s[1])];
      lines.push(slice && slice[0] <= ns ? `${slice[2] || 'unnamed'}: ${duration(slice[1] - slice[0])}` : 'nothing');
    } else {
      const tasks = row.kind === 'task' ? [row.task] : shown();
      lines.push(...(DATA.exact ? describeRun(tasks, ns, row) : describeBin(tasks, ns)));
    }
    return lines.join('\n');
  }

  function describeRun(tasks, ns, row) {
    const lines = [];
    const near = span() / inner() * 2;
    for (const task of tasks) {
      const run = task.runs[firstAfter(task.runs, ns - near, r => r.end)];
      if (run && run.start <= ns + near && (row.kind === 'task' || run.gpu === row.gpu)) {
        if (run.leased) lines.push(`${task.name}: had a lease for ${duration(run.end - run.dispatched)}`, `used ${duration(run.end - run.start)} of it`);
        else lines.push(`${task.name}: ran ${duration(run.end - run.start)} after waiting ${duration(run.start - run.submitted)}`,
          `response ${duration(run.end - run.submitted)}`);
        break;
      }
    }
    if (row.kind !== 'task') return lines.length ? lines : ['idle'];
    const inside = list => { const s = list[firstAfter(list, ns, item => item[1])]; return s && s[0] <= ns ? s : null; };
    const waiting = inside(row.task.waiting), short = inside(row.task.short);
    if (waiting) lines.push(`waiting for ${duration(waiting[1] - waiting[0])}`);
    if (short) lines.push(`waiting for budget for ${duration(short[1] - short[0])}`);
    return lines.length ? lines : [`${row.task.name}: nothing`];
  }

  function describeBin(tasks, ns) {
    const bin = Math.min(BINS - 1, Math.floor(ns / WIDTH));
    return tasks.filter(task => task.busy[bin]).map(task => `${task.name}: ${percent(task.busy[bin] / WIDTH)} of this ${duration(WIDTH)}`);
  }

  return {draw, describe, time, x, rowsOf: kind => rows.filter(row => row.kind === kind), get left() { return left; }, canvas};
})();
