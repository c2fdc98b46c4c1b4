// Charts and tables of the selected stretch.
const none = text => make('p', {class: 'none'}, text);
const faded = task => state.hot !== null && state.hot !== task.index ? ' faded' : '';

// A chart with axes; curves are {task, points: [[x, y]...], dots}. `across` turns an x into words.
function chart(holder, curves, {x0, x1, y1, log, xTicks, yTicks, guides = [], across, label, describe}) {
  const width = Math.max(260, holder.clientWidth), height = width < 420 ? 210 : 250;
  const left = 46, right = 12, top = 10, bottom = 26;
  const scale = log ? v => Math.log10(Math.max(v, 1)) : v => v;
  const px = v => left + (scale(v) - scale(x0)) / (scale(x1) - scale(x0) || 1) * (width - left - right);
  const py = v => height - bottom - v / (y1 || 1) * (height - top - bottom);
  const back = at => {
    const s = scale(x0) + (at - left) / (width - left - right) * (scale(x1) - scale(x0));
    return log ? 10 ** s : s;
  };
  const root = make('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label});
  for (const [v, text] of yTicks) {
    root.append(make('line', {class: 'grid', x1: left, x2: width - right, y1: py(v), y2: py(v)}),
      make('text', {x: left - 7, y: py(v) + 4, 'text-anchor': 'end'}, text));
  }
  for (const [v, text] of xTicks) {
    root.append(make('line', {class: 'grid', x1: px(v), x2: px(v), y1: top, y2: height - bottom}),
      make('text', {x: Math.min(px(v), width - 18), y: height - 8, 'text-anchor': 'middle'}, text));
  }
  for (const [v, text] of guides) {
    root.append(make('line', {class: 'guide', x1: left, x2: width - right, y1: py(v), y2: py(v)}),
      make('text', {x: left + 5, y: py(v) + (v < y1 * .9 ? -4 : 14)}, text));
  }
  root.append(make('line', {class: 'axis', x1: left, x2: width - right, y1: height - bottom, y2: height - bottom}));
  for (const {task, points, dots = []} of curves) {
    const path = points.map(([x, y], i) => `${i ? 'L' : 'M'}${px(x).toFixed(1)} ${py(y).toFixed(1)}`).join('');
    const group = make('g', {class: `line${faded(task)}`, color: colour(task.index)});
    group.append(make('path', {class: 'curve', d: path, stroke: colour(task.index), 'stroke-dasharray': dashes(task.index)}));
    for (const [x, y] of dots) group.append(make('circle', {cx: px(x), cy: py(y), r: 3.2, fill: colour(task.index)}));
    root.append(group);
  }
  const cross = make('line', {class: 'cross', y1: top, y2: height - bottom, visibility: 'hidden'});
  root.append(cross);
  const follow = event => {
    const box = root.getBoundingClientRect();
    const at = Math.max(left, Math.min(width - right, (event.clientX - box.left) * width / box.width));
    cross.setAttribute('x1', at);
    cross.setAttribute('x2', at);
    cross.setAttribute('visibility', 'visible');
    tip.show(event, [across(back(at)), ...describe(back(at))].join('\n'));
  };
  root.addEventListener('pointermove', follow);
  root.addEventListener('pointerdown', follow);
  root.addEventListener('pointerleave', () => { cross.setAttribute('visibility', 'hidden'); tip.hide(); });
  holder.replaceChildren(root);
}

function timeTicks(found, about) {
  const unit = found.length >= 2e9 ? 1e9 : found.length >= 2e6 ? 1e6 : 1e3;
  const name = {1e9: 's', 1e6: 'ms', 1e3: 'µs'}[unit];
  const list = ticks((found.start + DATA.start) / unit, (found.end + DATA.start) / unit, about);
  return list.map(v => [v * unit - DATA.start, `${Number(v.toFixed(6))} ${name}`]);
}

function drawFrames(found) {
  const holder = $('frames');
  const with_ = found.tasks.filter(entry => entry.frames && !state.hidden.has(entry.task.index));
  if (!with_.length) return holder.replaceChildren(none('No frames here.'));
  const curves = with_.map(({task}) => {
    const points = frameRates(task, found.from, found.to);
    return {task, points, dots: points.length < 4 ? points : []};
  });
  const most = Math.max(1, ...curves.flatMap(curve => curve.points.map(point => point[1])));
  const y = ticks(0, most * 1.08, 5);
  const nearest = (points, x) => points.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a);
  chart(holder, curves, {
    x0: found.start, x1: found.end, y1: most * 1.08, xTicks: timeTicks(found, holder.clientWidth / 90),
    yTicks: y.map(v => [v, plain(digits(v))]), label: `Frames per second over time of ${with_.length} tasks`,
    across: ns => instant(ns, found.length),
    describe: ns => curves.map(({task, points}) => `${task.name}: ${digits(nearest(points, ns)[1])} frames/s`),
  });
}

function drawSpace(found) {
  const holder = $('space');
  const with_ = found.tasks.filter(entry => entry.task.space.length && !state.hidden.has(entry.task.index));
  if (!with_.length) return holder.replaceChildren(none('Every task had all multiprocessors.'));
  const shareAt = (space, ns) => space.reduce((last, [at, permille]) => at <= ns ? permille : last, 1000) / 1000;
  const curves = with_.map(({task}) => {
    const points = [[found.start, shareAt(task.space, found.start)]];
    for (const [at, permille] of task.space) {
      if (at > found.start && at <= found.end) points.push([at, points[points.length - 1][1]], [at, permille / 1000]);
    }
    points.push([found.end, points[points.length - 1][1]]);
    return {task, points, dots: []};
  });
  chart(holder, curves, {
    x0: found.start, x1: found.end, y1: 1.05, xTicks: timeTicks(found, holder.clientWidth / 90),
    yTicks: [0, .25, .5, .75, 1].map(v => [v, percent(v, 0)]),
    label: `Shares of the multiprocessors over time of ${with_.length} tasks`,
    across: ns => instant(ns, found.length),
    describe: ns => with_.map(({task}) => `${task.name}: ${percent(shareAt(task.space, ns))} of the multiprocessors`),
  });
}

function drawResponses(found) {
  const holder = $('responses');
  const with_ = found.tasks.filter(entry => entry.groups && !state.hidden.has(entry.task.index));
  if (!with_.length) return holder.replaceChildren(none('No group completed here.'));
  const low = Math.min(...with_.map(entry => entry.pairs[0][0]));
  const high = Math.max(...with_.map(entry => entry.pairs[entry.pairs.length - 1][0]));
  const log = state.log;
  const x0 = log ? Math.max(1, low * .8) : 0, x1 = Math.max(x0 + 1, high * (log ? 1.25 : 1.03));
  const curves = with_.map(entry => {
    let seen = 0;
    const points = [[entry.pairs[0][0], 0]], every = Math.max(1, Math.floor(entry.pairs.length / 400));
    entry.pairs.forEach(([value, count], i) => {
      if (i % every === 0) points.push([value, seen / entry.groups]);
      seen += count;
      if (i % every === 0 || i === entry.pairs.length - 1) points.push([value, seen / entry.groups]);
    });
    points.push([x1, 1]);
    return {task: entry.task, points, dots: [[entry.p50, .5], [entry.p99, .99]]};
  });
  const round = [];
  if (log) {
    for (let power = Math.floor(Math.log10(x0)); power <= Math.log10(x1); power++) {
      for (const n of Math.log10(x1 / x0) < 2 ? [1, 2, 5] : [1]) round.push(n * 10 ** power);
    }
  } else round.push(...ticks(x0, x1, holder.clientWidth / 90));
  chart(holder, curves, {
    x0, x1, y1: 1.02, log, xTicks: round.filter(v => v >= x0 && v <= x1).map(v => [v, plain(duration(v))]),
    yTicks: [0, .25, .5, .75, 1].map(v => [v, percent(v, 0)]), guides: [[.5, 'p50'], [.99, 'p99']],
    label: `Share of groups done within a time, of ${with_.length} tasks; p50 and p99 are in the table of tasks`,
    across: ns => `within ${duration(ns)}`,
    describe: ns => with_.map(({task, pairs, groups}) => {
      const done = pairs.reduce((n, [value, count]) => value <= ns ? n + count : n, 0);
      return `${task.name}: ${percent(done / groups)} of groups`;
    }),
  });
}

function drawShares(found) {
  const list = found.tasks.filter(entry => !state.hidden.has(entry.task.index));
  if (!list.length || !found.length) return $('shares').replaceChildren(none('Nothing to share.'));
  const stack = make('div', {class: 'stack', role: 'img', 'aria-label': 'Shares of the GPU, one after the other'});
  const lines = make('div', {class: 'lines'});
  for (const {task, share, gpu} of list) {
    const words = `${task.name}: ${percent(share)} of the GPU, ${duration(gpu)}`;
    if (share) {
      const part = make('div', {class: pattern(task.index) + faded(task), color: colour(task.index), width_: `${100 * Math.min(1, share)}%`});
      stack.append(hint(part, words));
    }
    const inner = make('div', {class: pattern(task.index), color: colour(task.index), width_: `${100 * Math.min(1, share)}%`});
    lines.append(nameOf(task), make('div', {class: 'track' + faded(task)}, inner),
      make('span', {class: 'right share', 'data-task': task.index, 'data-ns': gpu}, percent(share)),
      make('span', {class: 'right soft'}, duration(gpu)));
  }
  const idle = 1 - found.tasks.reduce((n, entry) => n + entry.share, 0);
  lines.append(make('span', {}, 'idle'), make('div', {class: 'track'}), make('span', {class: 'right'}, percent(Math.max(0, idle))),
    make('span', {class: 'right soft'}, duration(Math.max(0, idle) * found.length * DATA.gpus)));
  $('shares').replaceChildren(stack, lines);
}

function drawBudgets(found) {
  const list = found.reserves.filter(entry => kept(entry.reserve));
  if (!list.length) return $('budgets').replaceChildren(none('No task here has a reserve.'));
  $('budgets').replaceChildren(...list.map(budget));
  for (const {reserve} of list) drawBudgetLine(reserve, found);
}

function budget({reserve, charged, used}) {
  const kind = {pe: 'posterior enforcement', ae: 'apriori enforcement'}[reserve.kind] || reserve.kind;
  const whole = state.selection ? ' in all' : '';  // these two are not known per selection
  const members = make('span', {class: 'swatches'}, ...reserve.members.map(swatch));
  const name = reserve.name.replace(/^@(.*)$/, '$1 (shared)');
  const figure = (value, words) => make('span', {}, make('b', {}, value), ` ${words}`);
  const box = make('div', {class: 'reserve'},
    make('h3', {}, members, name, make('small', {}, `${plain(duration(reserve.capacity))} every ${plain(duration(reserve.period))}, ${kind}`)),
    make('div', {class: 'figures'},
      make('span', {class: 'used', 'data-ns': charged}, make('b', {}, percent(used)), ' used'),
      figure(duration(charged), 'charged'), figure(String(reserve.overruns), `overruns${whole}`),
      figure(plain(duration(reserve.debt)), `deepest debt${whole}`)),
    make('div', {class: 'meter', role: 'img', 'aria-label': `${percent(used)} of the budget was used`},
      make('div', {width_: `${100 * Math.min(1, used)}%`})),
    make('div', {class: 'chart'}));
  reserve.holder = box.lastChild;
  return box;
}

function drawBudgetLine(reserve, found) {
  const holder = reserve.holder, all = reserve.points;
  const width = Math.max(260, holder.clientWidth), height = 92, left = 46, right = 12;
  const before = all.filter(point => point[0] <= found.start).pop();
  const inside = all.filter(point => point[0] > found.start && point[0] <= found.end);
  if (before) inside.unshift(before);
  if (!inside.length) return;
  const values = inside.map(point => point[1]);
  const high = Math.max(reserve.capacity, ...values), low = Math.min(0, ...values);
  const px = ns => left + (Math.max(ns, found.start) - found.start) / (found.length || 1) * (width - left - right);
  const py = v => 8 + (high - v) / (high - low || 1) * (height - 16);
  const {line, band, dense} = steps({points: inside, thinned: reserve.thinned}, found.start, found.end, px, py);
  const join = points => points.map(([x, y], i) => `${i ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`).join('');
  const columns = [...band].map(([x, [a, b]]) => `M${x} ${a.toFixed(1)}V${(b + .8).toFixed(1)}`).join('');
  const root = make('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `Budget of ${reserve.name} over time`});
  for (const v of new Set([0, reserve.capacity, low])) {
    root.append(make('line', {class: v === 0 ? 'axis' : 'grid', x1: left, x2: width - right, y1: py(v), y2: py(v)}));
    if (v === 0 || Math.abs(py(v) - py(0)) > 13) root.append(make('text', {x: left - 6, y: py(v) + 4, 'text-anchor': 'end'}, plain(duration(v))));
  }
  root.append(make('path', {class: dense ? 'curve dense' : 'curve', d: dense ? columns : join(line), stroke: 'var(--accent)'}));
  const words = event => {
    const box = root.getBoundingClientRect();
    const ns = found.start + ((event.clientX - box.left) * width / box.width - left) / (width - left - right) * found.length;
    const at = inside.filter(point => point[0] <= ns).pop();
    tip.show(event, `${instant(Math.max(found.start, Math.min(found.end, ns)), found.length)}\nbudget ${at ? (reserve.thinned ? 'about ' : '') + duration(at[1]) : 'none yet'}`);
  };
  root.addEventListener('pointermove', words);
  root.addEventListener('pointerdown', words);
  root.addEventListener('pointerleave', tip.hide);
  holder.replaceChildren(root);
}

function table(node, heads, rows) {
  const head = make('tr', {}, ...heads.map(([content, kind]) => make('th', {scope: 'col', class: kind}, content)));
  node.replaceChildren(make('thead', {}, head), make('tbody', {}, ...rows));
}

function drawTasks(found) {
  const cell = (key, text, value, kind = '') => make('td', {class: kind, 'data-key': key, 'data-value': value}, text);
  const timed = found.tasks.some(entry => entry.deadlines), drawn = found.tasks.some(entry => entry.frames);
  const rows = found.tasks.filter(entry => !state.hidden.has(entry.task.index)).map(entry => {
    const {task} = entry, dot = '·';
    return make('tr', {'data-task': task.index, class: state.hot === task.index ? 'hot' : ''},
      make('th', {scope: 'row'}, nameOf(task)),
      cell('policy', task.policy, task.policy, 'text'), cell('priority', task.priority, task.priority),
      cell('groups', String(entry.groups), entry.groups),
      drawn ? cell('fps', entry.frames ? entry.fps.toFixed(1) : dot, entry.frames) : null,
      ...['p50', 'p99', 'max'].map(key => cell(key, entry.groups ? duration(entry[key]) : dot, entry[key])),
      cell('wait', duration(entry.wait), entry.wait), cell('share', percent(entry.share), entry.gpu),
      timed ? cell('missed', entry.deadlines ? `${entry.missed} of ${entry.deadlines}` : dot, entry.missed) : null);
  });
  const heads = [['task', 'text'], ['policy', 'text'], ['priority'], ['groups'], drawn ? ['frames/s'] : null, ['response p50'], ['p99'], ['max'],
    ['waited'], ['GPU share'], timed ? ['deadlines missed'] : null];
  table($('tasks'), heads.filter(Boolean), rows);
  if (!rows.length) $('tasks').replaceChildren(make('tbody', {}, make('tr', {}, make('td', {class: 'text'}, 'No task is shown.'))));
}

function drawWaits(found) {
  const list = found.tasks.filter(entry => !state.hidden.has(entry.task.index));
  const used = new Set(list.flatMap(entry => [...entry.waits].filter(([, ns]) => ns).map(([cause]) => cause)));
  const causes = [...used].filter(cause => !state.hidden.has(cause)).sort((a, b) => a - b);
  if (!causes.length) return $('waits').replaceChildren(make('tbody', {}, make('tr', {}, make('td', {class: 'text'}, 'Nothing waited here.'))));
  const words = cause => cause < TASKS.length ? TASKS[cause].name : CAUSES[cause - TASKS.length];
  const heads = [['waited', 'text'], ['in all'], ...causes.map(cause => [cause < TASKS.length ? nameOf(TASKS[cause]) : words(cause)])];
  const rows = list.map(({task, wait, waits}) => make('tr', {'data-task': task.index, class: state.hot === task.index ? 'hot' : ''},
    make('th', {scope: 'row'}, nameOf(task)), make('td', {'data-value': wait}, duration(wait)),
    ...causes.map(cause => {
      const ns = waits.get(cause) || 0, part = wait ? ns / wait : 0;
      const cell = make('td', {'data-cause': cause, 'data-value': ns, class: ns ? '' : 'zero'}, ns ? duration(ns) : '0');
      if (ns) {
        cell.append(make('small', {}, percent(part, 0)));
        cell.style.backgroundColor = `color-mix(in srgb, var(--heat) ${Math.round(8 + 62 * part)}%, var(--card))`;
        hint(cell, `${task.name} waited ${duration(ns)} for ${words(cause)}:\n${percent(part)} of its waiting`);
      }
      return cell;
    })));
  table($('waits'), heads, rows);
}
