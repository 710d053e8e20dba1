// Posts the code of the link, which stands in the fragment only: it is taken out of the address before anything else.
import { LOGIN } from './texts.js';

const said = document.getElementById('said');
const go = document.getElementById('go');

/** The page that sent the person here: the operations, or else the chat. */
function whereTo() {
  try {
    const to = localStorage.getItem('everturn.to');
    localStorage.removeItem('everturn.to');
    return to === '/ops' ? to : '/';
  } catch {
    return '/';
  }
}

/** The code of the address, which has none from then on. */
function taken() {
  const code = location.hash.slice(1);
  history.replaceState(null, '', '/login');
  return code;
}

async function isIn() {
  try {
    return (await fetch('/web/me', { cache: 'no-store' })).ok;
  } catch {
    return false;
  }
}

async function enter(code) {
  let answer;
  said.textContent = LOGIN.busy;
  try {
    answer = await fetch('/login', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ code }),
    });
  } catch {
    said.textContent = LOGIN.noAnswer;
    return;
  }
  if (answer.ok) {
    location.replace(whereTo());
    return;
  }
  const body = await answer.json().catch(() => ({}));
  said.textContent = body.error || LOGIN.answered(answer.status);
  said.className = 'wrong';
  if (await isIn()) {
    go.textContent = LOGIN.already;
    go.hidden = false;
  }
}

// A link that is opened in a window which shows this page already changes the fragment only.
addEventListener('hashchange', () => enter(taken()));
const code = taken();
if (code) {
  enter(code);
} else if (await isIn()) {
  location.replace(whereTo());
} else {
  said.textContent = LOGIN.how;
}
