// Puts the parts together and listens.
function redraw(part = 'all') {
  timeline.draw();
  if (part === 'view') return;
  const found = state.selection ? numbers(state.selection) : WHOLE;
  const scope = state.selection ? `${instant(found.start, found.length)} to ${instant(found.end, found.length)} (${duration(found.length)})` : 'all of the run';
  $('range').textContent = state.selection ? `Selected: ${scope}` : `Nothing selected: the numbers are of ${DATA.facts.scope || (DATA.duration === DATA.whole ? 'the whole run' : 'this part of the run')}, ${duration(DURATION)}.`;
  for (const node of document.querySelectorAll('.scope')) node.textContent = state.selection ? scope : '';
  $('clear').disabled = !state.selection;
  drawTasks(found);
  drawFrames(found);
  drawSpace(found);
  drawResponses(found);
  drawShares(found);
  drawBudgets(found);
  drawWaits(found);
}

let due = '';
function soon(part) {
  if (!due) requestAnimationFrame(() => { const now = due; due = ''; redraw(now); });
  due = due === 'all' || part === 'all' ? 'all' : part;
}

// -- header and legend ----------------------------------------------------------------------------

function head() {
  const {facts} = DATA;
  $('title').textContent = facts.trace;
  const groups = TASKS.reduce((n, task) => n + task.groups, 0);
  const policies = [...new Set(TASKS.map(task => task.policy).filter(Boolean))].sort().join(', ');
  const share = DURATION ? DATA.busy / DURATION / DATA.gpus : 0;
  const entries = [['written', facts.written], ['length', duration(DURATION)],
    DATA.duration === DATA.whole ? null : ['part', `${instant(0, DURATION)} to ${instant(DURATION, DURATION)} of ${duration(DATA.whole)}`],
    ['tasks', DATA.known], ['groups', groups.toLocaleString('en')], ['policies', policies || 'none'],
    [DATA.gpus > 1 ? `${DATA.gpus} GPUs busy` : 'GPU busy', percent(share)], ['made by', facts.command, 'code']];
  $('facts').replaceChildren(...entries.filter(Boolean).map(([name, value, kind]) =>
    make('div', {}, make('dt', {}, name), make('dd', {class: kind}, String(value)))));
  const notes = [];
  if (facts.problem) notes.push(`${facts.problem}. What is shown is what the trace holds.`);
  if (!DATA.exact) notes.push(`This run is long, so the page holds sums over ${duration(WIDTH)} instead of single groups. Counts, sums and the whole ` +
    'run’s p50, p99 and max are exact; percentiles of a selection are within 3 %. For single groups make a report of a part: headway report TRACE --from … --to …');
  if (DATA.reserves_left_out) notes.push(`Budgets are shown of the ${RESERVES.length} reserves that were charged most; ${DATA.reserves_left_out} more are left out.`);
  if (DATA.marks_left_out) notes.push(`The timeline marks the first ${DATA.marks.length} events (tasks that come and go, focus, policies); ${DATA.marks_left_out} more are left out.`);
  if (DATA.others.left_out) notes.push(`Of the tracks of other tools the ${OTHERS.length} busiest are shown; ${DATA.others.left_out} more are left out.`);
  if (!groups) notes.push('No group completed in this part of the run.');
  $('notes').replaceChildren(...notes.map(note => make('p', {}, note)));
  $('footer').textContent = `Headway ${DATA.version} · ${DATA.events.toLocaleString('en')} events · ` +
    `a selection counts in steps of ${duration(WIDTH)} · response: from submission to completion of a group`;
}

// What was learned since; what is hidden stays hidden.
function renew(data) {
  const before = TASKS.map(task => task.name);
  const hidden = new Set(before.filter((_, index) => state.hidden.has(index)));
  take(data);
  state.hidden = new Set(TASKS.filter(task => hidden.has(task.name)).map(task => task.index));
  state.view = [0, DURATION || 1];
  if (TASKS.map(task => task.name).join('\n') !== before.join('\n')) {
    state.hot = null;
    legend();
  }
  head();
  redraw();
}

function legend() {
  $('legend').replaceChildren(...TASKS.map(task => {
    const button = make('button', {type: 'button', 'aria-pressed': String(!state.hidden.has(task.index)), 'data-task': task.index, title: 'Hide or show; with Shift, show only this'},
      swatch(task.index), make('span', {}, task.name));
    const heat = index => () => { if (state.hot !== index) { state.hot = index; soon('all'); } };
    button.addEventListener('pointerenter', event => { if (event.pointerType === 'mouse') heat(task.index)(); });
    button.addEventListener('pointerleave', heat(null));
    button.addEventListener('focus', () => { if (button.matches(':focus-visible')) heat(task.index)(); });
    button.addEventListener('blur', heat(null));
    button.addEventListener('click', event => toggle(task.index, event.shiftKey));
    return button;
  }));
}

function toggle(index, only) {
  const {hidden} = state;
  if (only) {
    const alone = !hidden.has(index) && hidden.size === TASKS.length - 1;
    hidden.clear();
    if (!alone) for (const task of TASKS) if (task.index !== index) hidden.add(task.index);
  } else if (!hidden.delete(index)) hidden.add(index);
  if (hidden.has(state.hot)) state.hot = null;
  for (const button of $('legend').children) button.setAttribute('aria-pressed', String(!hidden.has(Number(button.dataset.task))));
  soon('all');
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  $('theme').textContent = name === 'dark' ? 'Light' : 'Dark';
  $('theme').setAttribute('aria-label', name === 'dark' ? 'Light colours' : 'Dark colours');
}

// -- moving through time --------------------------------------------------------------------------

function look(from, to) {
  const least = Math.max(10, DURATION / 1e7), room = Math.max(DURATION, 1);
  let size = Math.min(room, Math.max(least, to - from));
  from = Math.max(0, Math.min(room - size, from));
  state.view = [from, from + size];
  soon('view');
}

function zoom(factor, around = (state.view[0] + state.view[1]) / 2) {
  const [from, to] = state.view;
  look(around - (around - from) * factor, around + (to - around) * factor);
}

const pan = part => { const size = state.view[1] - state.view[0]; look(state.view[0] + part * size, state.view[1] + part * size); };

// The bins that a stretch of time touches.
function select(from, to) {
  const a = Math.max(0, Math.min(BINS - 1, Math.floor(Math.min(from, to) / WIDTH + 1e-9)));
  const b = Math.max(a + 1, Math.min(BINS, Math.ceil(Math.max(from, to) / WIDTH - 1e-9)));
  state.selection = [a, b];
  soon('all');
}

function unselect() {
  state.selection = null;
  soon('all');
}

function nudge(step) {
  const [from, to] = state.selection || [Math.floor(state.view[0] / WIDTH), Math.floor(state.view[0] / WIDTH)];
  const by = Math.max(1, Math.round((state.view[1] - state.view[0]) / WIDTH / 50));
  select(from * WIDTH, Math.max(from + 1, to + step * by) * WIDTH);
}

function listen() {
  const {canvas} = timeline;
  const fingers = new Map();
  let begun = null;
  canvas.addEventListener('pointerdown', event => {
    fingers.set(event.pointerId, event);
    canvas.setPointerCapture(event.pointerId);
    begun = {px: event.offsetX, ns: timeline.time(event.offsetX), view: [...state.view], moved: false,
      pans: (state.mode === 'pan') !== event.shiftKey || fingers.size > 1};
    if (event.offsetX < timeline.left) begun = null;
    tip.show(event, timeline.describe(event.offsetX, event.offsetY) || ' ');
    if (!timeline.describe(event.offsetX, event.offsetY)) tip.hide();
  });
  canvas.addEventListener('pointermove', event => {
    const before = fingers.get(event.pointerId);
    if (before && fingers.size === 2) return pinch(before, event);
    if (before && begun) {
      if (Math.abs(event.offsetX - begun.px) > 3) begun.moved = true;
      if (begun.moved && begun.pans) {
        const scale = (begun.view[1] - begun.view[0]) / Math.max(1, canvas.clientWidth - timeline.left);
        look(begun.view[0] - (event.offsetX - begun.px) * scale, begun.view[1] - (event.offsetX - begun.px) * scale);
      } else if (begun.moved) select(begun.ns, timeline.time(event.offsetX));
    }
    const text = timeline.describe(event.offsetX, event.offsetY);
    if (text) tip.show(event, text); else tip.hide();
  });
  function pinch(before, event) {
    const other = [...fingers.values()].find(finger => finger.pointerId !== event.pointerId);
    const was = Math.abs(before.offsetX - other.offsetX), is = Math.abs(event.offsetX - other.offsetX);
    fingers.set(event.pointerId, event);
    begun = null;
    if (was > 8 && is > 8) zoom(was / is, timeline.time((event.offsetX + other.offsetX) / 2));
  }
  for (const kind of ['pointerup', 'pointercancel']) canvas.addEventListener(kind, event => { fingers.delete(event.pointerId); begun = null; });
  canvas.addEventListener('pointerleave', tip.hide);
  canvas.addEventListener('wheel', event => {
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY * .003), timeline.time(event.offsetX));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / 1200);
    else return;
    event.preventDefault();
  }, {passive: false});
  const keys = {'+': () => zoom(.6), '=': () => zoom(.6), '-': () => zoom(1 / .6), 0: () => look(0, DURATION), Home: () => look(0, DURATION),
    ArrowLeft: event => event.shiftKey ? nudge(-1) : pan(-.15), ArrowRight: event => event.shiftKey ? nudge(1) : pan(.15),
    s: () => select(...state.view), S: () => select(...state.view), Escape: unselect};
  canvas.addEventListener('keydown', event => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    act(event);
    event.preventDefault();
  });
  const presses = {'zoom-in': () => zoom(.5), 'zoom-out': () => zoom(2), 'zoom-all': () => look(0, DURATION),
    'select-view': () => select(...state.view), clear: unselect, log: () => scale(true), linear: () => scale(false),
    mode: () => mode(state.mode === 'pan' ? 'select' : 'pan'),
    theme: () => { theme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'); redraw(); }};
  for (const [id, act] of Object.entries(presses)) $(id).addEventListener('click', act);
  new ResizeObserver(() => soon('all')).observe(document.querySelector('main'));
  let before = null;  // paper is white
  addEventListener('beforeprint', () => { before = document.documentElement.dataset.theme; theme('light'); redraw(); });
  addEventListener('afterprint', () => { theme(before); redraw(); });
}

function scale(log) {
  state.log = log;
  $('log').setAttribute('aria-pressed', String(log));
  $('linear').setAttribute('aria-pressed', String(!log));
  soon('all');
}

function mode(name) {
  state.mode = name;
  $('mode').textContent = `Drag: ${name}`;
  $('mode').setAttribute('aria-pressed', String(name === 'pan'));
  timeline.canvas.style.cursor = name === 'pan' ? 'grab' : 'crosshair';
}

theme(matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
mode(matchMedia('(pointer: coarse)').matches ? 'pan' : 'select');
head();
legend();
listen();
redraw();
document.documentElement.dataset.ready = 'yes';
