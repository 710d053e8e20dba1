// Posts the code of the link, which stands in the fragment only: it is taken out of the address before anything else.
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
  said.textContent = 'Logging in …';
  try {
    answer = await fetch('/login', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ code }),
    });
  } catch {
    said.textContent = 'The gateway does not answer. Is it running? Then open the link again.';
    return;
  }
  if (answer.ok) {
    location.replace(whereTo());
    return;
  }
  const body = await answer.json().catch(() => ({}));
  said.textContent = body.error || `The gateway answered ${answer.status}.`;
  said.className = 'wrong';
  if (await isIn()) {
    go.textContent = 'You are logged in already: go to the page';
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
  said.textContent = 'Run “everturn login” where the gateway runs, and open the link it prints.';
}
