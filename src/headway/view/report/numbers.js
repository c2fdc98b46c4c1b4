// What the page knows, and sums over a stretch of it. Bins and selections are half-open; an instant
// belongs to the stretch that it ends, as in the analysis that made these numbers.
let DATA, DURATION, WIDTH, BINS, TASKS, RESERVES, OTHERS, WHOLE;
const CAUSES = ['own budget', 'hold-off', 'GPU idle'];

// From here on the page is about this.
function take(data) {
  DATA = data;
  DURATION = data.duration;
  WIDTH = data.width;
  BINS = Math.max(1, Math.ceil(DURATION / WIDTH));
  TASKS = data.tasks.map(decodeTask);
  RESERVES = data.reserves.map(decodeReserve);
  OTHERS = data.others.tracks.map(decodeOther);
  WHOLE = numbers(null);
}
take(JSON.parse(document.getElementById('data').textContent));

function dense(sparse) {
  const bins = new Float64Array(BINS);
  for (let i = 0, at = 0; i < sparse.length; i += 2) bins[at += sparse[i]] = sparse[i + 1];
  return bins;
}

function stretches(steps) {
  const list = [];
  for (let i = 0, at = 0; i < steps.length; i += 2) list.push([at += steps[i], at + steps[i + 1]]);
  return list;
}

function decodeTask(task, index) {
  const runs = [];
  for (let i = 0, at = 0; i < task.runs.length; i += 5) {
    const [step, ran, queued, waited, gpu] = task.runs.slice(i, i + 5);
    at += step;
    const leased = gpu < 0;  // not a group: many may have passed meanwhile
    runs.push({task: index, gpu: leased ? -1 - gpu : gpu, leased, start: at, end: at + ran, dispatched: at - queued, submitted: at - queued - waited});
  }
  runs.sort((a, b) => a.start - b.start);
  const waits = new Map();
  for (const [cause, series] of Object.entries(task.waits)) waits.set(Number(cause), dense(series));
  return {...task, index, runs, waits, busy: dense(task.busy), frames: dense(task.frames),
    deadlines: dense(task.deadlines), missed: dense(task.missed),
    waiting: stretches(task.waiting), short: stretches(task.short)};
}

function decodeReserve(reserve) {
  const points = [];
  for (let i = 0, at = 0; i < reserve.points.length; i += 2) points.push([at += reserve.points[i], reserve.points[i + 1]]);
  return {...reserve, points, charged: dense(reserve.charged)};
}

// A track that another tool recorded: slices that follow each other, each with its name.
function decodeOther(track) {
  const slices = [];
  for (let i = 0, at = 0; i < track.slices.length; i += 3) {
    const name = track.slices[i + 2];
    slices.push([at += track.slices[i], at + track.slices[i + 1], DATA.others.names[name], name]);
  }
  return {...track, slices};
}

function sum(bins, from, to) {
  let total = 0;
  for (let i = from; i < to; i++) total += bins[i];
  return total;
}

// Sorted response times with how often each occurred.
function responses(task, from, to) {
  if (!DATA.exact) {
    const counts = new Map();
    for (let i = 0; i < task.histogram.length; i += 3) {
      const [bin, bucket, count] = task.histogram.slice(i, i + 3);
      if (bin >= from && bin < to) counts.set(bucket, (counts.get(bucket) || 0) + count);
    }
    return [...counts].sort((a, b) => a[0] - b[0]).map(([bucket, count]) => [2 ** (bucket / 16), count]);
  }
  const a = from ? from * WIDTH : (DATA.start ? 0 : -1), b = Math.min(to * WIDTH, DURATION);
  const values = task.runs.filter(run => run.end > a && run.end <= b && !run.leased).map(run => run.end - run.submitted);
  return Float64Array.from(values).sort().reduce((list, value) => {
    const last = list[list.length - 1];
    if (last && last[0] === value) last[1]++; else list.push([value, 1]);
    return list;
  }, []);
}

function percentile(pairs, count, fraction) {
  let rank = Math.max(1, Math.ceil(fraction * count));
  for (const [value, n] of pairs) if ((rank -= n) <= 0) return value;
  return 0;
}

function numbers(selection) {
  const [from, to] = selection || [0, BINS];
  const start = from * WIDTH, end = Math.min(to * WIDTH, DURATION), length = end - start;
  const tasks = TASKS.map(task => {
    const pairs = responses(task, from, to);
    const groups = pairs.reduce((n, pair) => n + pair[1], 0);
    const known = !selection && !DATA.exact;  // the whole run was worked out from every group
    const at = fraction => percentile(pairs, groups, fraction);
    const frames = sum(task.frames, from, to), gpu = sum(task.busy, from, to);
    const waits = new Map([...task.waits].map(([cause, bins]) => [cause, sum(bins, from, to)]));
    return {task, pairs, groups, frames, gpu, waits,
      p50: known ? task.p50 : at(.5), p99: known ? task.p99 : at(.99), max: known ? task.max : at(1),
      fps: length ? frames * 1e9 / length : 0, share: length ? gpu / length / DATA.gpus : 0,
      wait: [...waits.values()].reduce((a, b) => a + b, 0),
      deadlines: sum(task.deadlines, from, to), missed: sum(task.missed, from, to)};
  });
  const reserves = RESERVES.map(reserve => {
    const lasted = Math.max(0, end - Math.max(start, reserve.since));
    const charged = sum(reserve.charged, from, to), entitled = reserve.capacity * lasted / reserve.period;
    return {reserve, charged, entitled, used: entitled ? charged / entitled : 0};
  });
  return {from, to, start, end, length, tasks, reserves};
}

// Frames per second around each of forty instants at most, in bins from here to there: the mean of half a second, in
// which a part of the frame that comes next counts, so a steady rate is drawn as steady.
function frameRates(task, from, to) {
  const marks = [];  // the ends of bins with frames, and how many frames there were by then
  for (let i = from, count = 0; i < to; i++) if (task.frames[i]) marks.push([i + 1, count += task.frames[i]]);
  if (!marks.length) return [];
  const length = to - from, bins = ns => Math.ceil(ns / WIDTH);
  const step = Math.min(length, Math.max(1, Math.ceil(length / 40), bins(1e8)));
  const half = Math.max(step, Math.min(bins(5e8), length / 4)) / 2;
  const first = marks[0][0], last = marks[marks.length - 1][0];
  const by = at => {
    const next = marks.findIndex(mark => mark[0] > at);
    if (next < 0) return marks[marks.length - 1][1];
    const [[x0, y0], [x1, y1]] = [marks[next - 1], marks[next]];
    return y0 + (y1 - y0) * (at - x0) / (x1 - x0);
  };
  const mean = (begin, end) => {
    const a = Math.max(begin, first), b = Math.min(end, last);
    if (b - a >= (end - begin) / 4) return (by(b) - by(a)) * 1e9 / ((b - a) * WIDTH);
    const inside = sum(task.frames, Math.round(begin), Math.round(end));
    return inside * 1e9 / ((end - begin) * WIDTH);
  };
  const points = [];
  for (let place = 0; place < Math.max(1, Math.floor(length / step)); place++) {
    const at = from + step * place + step / 2;
    points.push([at * WIDTH, mean(Math.max(from, at - half), Math.min(to, at + half))]);
  }
  return points;
}
