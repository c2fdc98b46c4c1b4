// Small parts that everything is drawn with. Text is set as text, never as HTML.
const $ = id => document.getElementById(id);
const state = {view: [0, DURATION || 1], selection: null, hidden: new Set(), hot: null, log: true, mode: 'select'};
const shown = () => TASKS.filter(task => !state.hidden.has(task.index));
// A reserve goes with its tasks; one that nobody was charged to stays.
const kept = reserve => !reserve.members.length || reserve.members.some(index => !state.hidden.has(index));

function make(tag, options = {}, ...children) {
  const svg = ['svg', 'g', 'path', 'line', 'text', 'circle', 'rect'].includes(tag);
  const node = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(options)) {
    if (key === 'color') node.style.setProperty('--c', value);
    else if (key === 'width_') node.style.width = value;
    else if (value !== undefined && value !== null) node.setAttribute(key, value);
  }
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}

// Eight colours that stay apart for colour-blind eyes; after that they come again with a pattern.
const colour = index => `var(--t${index % 8})`;
const pattern = index => ['', 'striped', 'dotted'][Math.min(2, Math.floor(index / 8))];
const dashes = index => ['', '7 3', '2 3'][Math.min(2, Math.floor(index / 8))];
const swatch = index => make('i', {class: `swatch ${pattern(index)}`, color: colour(index)});
const nameOf = task => make('span', {class: 'name', title: task.name}, swatch(task.index), make('span', {}, task.name));

const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function digits(value) {
  if (value === 0) return '0';
  const size = Math.abs(value);
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function duration(ns) {
  const size = Math.abs(ns);
  if (size >= 1e9) return `${digits(ns / 1e9)} s`;
  if (size >= 1e6) return `${digits(ns / 1e6)} ms`;
  if (size >= 1e3) return `${digits(ns / 1e3)} µs`;
  return `${digits(ns)}${ns ? ' ns' : ''}`;
}

// A point in time, exact enough for the stretch that is looked at.
function instant(ns, span) {
  const at = ns + DATA.start;
  const [unit, size] = span >= 2e9 ? ['s', 1e9] : span >= 2e6 ? ['ms', 1e6] : ['µs', 1e3];
  const places = Math.min(6, Math.max(0, Math.ceil(3 - Math.log10(Math.max(span, 1) / size))));
  return `${(at / size).toFixed(places)} ${unit}`;
}

// A round value, without zeros that say nothing.
const plain = text => text.replace(/(\.\d*?)0+(?= |$)/, '$1').replace(/\.(?= |$)/, '');

const percent = (share, places = 1) => `${(100 * share).toFixed(places)} %`;

// Round values between two, about so many.
function ticks(from, to, about) {
  const raw = (to - from) / Math.max(1, about);
  if (!(raw > 0)) return [from];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= raw);
  const list = [];
  for (let n = Math.ceil(from / step - 1e-9); n * step <= to * (1 + 1e-12) + 1e-9; n++) list.push(n * step);
  return list;
}

const tip = {
  show(event, text) {
    const node = $('tip');
    node.textContent = text;
    node.hidden = false;
    const box = node.getBoundingClientRect();
    const x = Math.min(event.clientX + 14, innerWidth - box.width - 6);
    const y = event.clientY + 16 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 16;
    node.style.left = `${Math.max(4, x)}px`;
    node.style.top = `${Math.max(4, y)}px`;
  },
  hide() { $('tip').hidden = true; },
};

function hint(node, text) {
  node.addEventListener('pointermove', event => tip.show(event, text));
  node.addEventListener('pointerdown', event => tip.show(event, text));
  node.addEventListener('pointerleave', tip.hide);
  return node;
}

// A line that goes in steps, as [x, y] in pixels; where it is denser than the pixels, or only some of
// its points are known, the band between its least and its largest value in each column.
function steps(reserve, from, to, px, py) {
  const {points, thinned} = reserve;
  let first = points.findIndex(point => point[0] > from);
  first = Math.max(0, (first < 0 ? points.length : first) - 1);
  const line = [], band = new Map();
  const widen = (column, a, b) => {
    const [low, high] = band.get(column) || [a, a];
    band.set(column, [Math.min(low, a, b), Math.max(high, a, b)]);
  };
  let last = null, seen = 0;
  for (let i = first; i < points.length && points[i][0] <= to; i++, seen++) {
    const x = px(Math.max(points[i][0], from)), y = py(points[i][1]), column = Math.round(x);
    if (last !== null) line.push([x, last[1]]);
    if (last && thinned) for (let c = Math.round(last[0]) + 1; c < column; c++) widen(c, last[1], y);
    widen(column, y, last ? last[1] : y);
    line.push([x, y]);
    last = [x, y];
  }
  if (last !== null) line.push([px(to), last[1]]);
  return {line, band, dense: thinned || seen > 1.2 * Math.abs(px(to) - px(from))};
}
