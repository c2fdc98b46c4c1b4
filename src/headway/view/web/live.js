// What `headway web` adds to the report: programs as `headway top` shows them, and all of the page
// anew every second, unless somebody looks at a part of it.
const EVERY_MS = 1000;
const WRITES = DATA.facts.writes === true;
let paused = false;
const stands = () => paused || state.selection !== null || state.view[1] - state.view[0] < (DURATION || 1);

const now = make('section', {class: 'card wide', id: 'now', 'aria-labelledby': 'h-now'},
  make('div', {class: 'head'}, make('h2', {id: 'h-now'}, 'Programs now'),
    make('div', {class: 'tools'}, make('button', {type: 'button', id: 'pause', 'aria-pressed': 'false'}, 'Pause'))),
  make('p', {id: 'said', class: 'hint', role: 'status'}),
  make('div', {class: 'scroll', tabindex: '0', role: 'region', 'aria-labelledby': 'h-now'}, make('table', {id: 'programs'})),
  make('div', {id: 'program-notes', class: 'hint'}), WRITES ? form() : null);
document.querySelector('main').prepend(now);
$('pause').addEventListener('click', () => {
  const go = stands();
  paused = !go;
  if (go) { state.selection = null; look(0, DURATION); }
  tell();
});

function tell(problem = '') {
  const still = stands();
  $('pause').textContent = still ? 'Go on' : 'Pause';
  $('pause').setAttribute('aria-pressed', String(still));
  $('said').textContent = problem || (still ? 'This page stands still while you look at a part of it.' : '');
}

function showPrograms(found) {
  const heads = found.columns.map(([title, help, left]) => [make('span', {title: help}, title), left ? 'text' : undefined]);
  const rows = found.rows.map(row => make('tr', {'data-program': row.task},
    ...row.cells.map(([text, tone], i) => make(i ? 'td' : 'th', {scope: i ? null : 'row', 'data-column': found.columns[i][0],
      class: [found.columns[i][2] ? 'text' : '', tone && `tone-${tone}`].filter(Boolean).join(' ')}, text))));
  table($('programs'), heads, rows);
  if (!rows.length) $('programs').replaceChildren(make('tbody', {}, make('tr', {}, make('td', {class: 'text'}, 'No program uses the GPU under Headway.'))));
  $('program-notes').replaceChildren(...found.notes.map(note => make('p', {}, note)));
  if (WRITES) offer(found.rows.filter(row => row.served).map(row => row.task));
}

async function ask(name, options) {
  const answer = await fetch(name, {cache: 'no-store', ...options});
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer;
}

// -- changes -----------------------------------------------------------------------------------

function form() {
  const field = (name, hint) => make('label', {}, `${name} `, make('input', {name, size: '10', placeholder: hint, autocomplete: 'off'}));
  const made = make('form', {id: 'change'}, make('label', {}, 'program ', make('select', {name: 'task'})),
    field('priority', '9'), field('reserve', '5ms/20ms'), field('policy', 'prt'), make('button', {}, 'Change'),
    make('output', {id: 'changed', role: 'status'}));
  made.addEventListener('submit', async event => {
    event.preventDefault();
    const wanted = Object.fromEntries([...new FormData(made)].filter(([, value]) => value));
    try {
      const done = await ask('set', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(wanted)});
      $('changed').textContent = (await done.text()).trim();
    } catch (error) { $('changed').textContent = error.message; }
  });
  return made;
}

function offer(names) {
  const list = $('change').elements.task;
  if (names.join('\n') === [...list.options].map(option => option.value).join('\n')) return;
  const chosen = list.value;
  list.replaceChildren(...names.map(name => make('option', {value: name}, name)));
  if (names.includes(chosen)) list.value = chosen;
}

// -- again and again -----------------------------------------------------------------------------

async function refresh() {
  let problem = '';
  try {
    const found = await (await ask('now')).json();
    problem = found.problem || '';
    if (found.rows) showPrograms(found);
    if (!stands()) {
      const data = await (await ask('data')).json();
      if (!stands()) renew(data);
    }
  } catch (error) { problem = `headway web does not answer: ${error.message}`; }
  tell(problem);
  document.documentElement.dataset.refreshed = String(Number(document.documentElement.dataset.refreshed || 0) + 1);
  setTimeout(refresh, document.hidden ? 5 * EVERY_MS : EVERY_MS);
}
refresh();
