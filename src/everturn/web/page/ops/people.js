// Who may speak on chat platforms: who asks, who was let in or turned out. Fetched when somebody looks at it.
import { $, el } from '../dom.js';
import { ask } from '../line.js';
import { Table, since } from './table.js';

const faint = (...kids) => el('span', { class: 'faint block' }, ...kids);
const called = (row) => row.name || row.person || row.id;
const act = (row, action, name, body, more = {}) => ({ name, of: called(row), path: '/ops/api/people/act', body: { action, ...body }, ...more });
const OWNER = { sure: { question: 'Make them an owner? Owners may use every command of this gateway.', yes: 'Make them an owner', no: 'Not now' } };
const OUT = { sure: { question: 'Turn them out? What runs for them stops at once, and no list lets them in.', yes: 'Turn them out', no: 'Leave it' } };

const WHO = { head: 'Who', of: ['name', 'platform', 'person', 'id'], draw: (row) => [called(row), faint(`${row.platform}:${row.person ?? row.id}`)] };

export class People {
  constructor(acts) {
    this.asking = new Table('asking', {
      caption: 'Who asks to be let in', quiet: true, acts, key: (row) => row.request, empty: 'Nobody asks.',
      columns: [WHO, { head: 'Asked', of: ['asked_at'], draw: (row) => [since(row.asked_at), ' ago'] }],
      choices: (row) => ({
        about: `request ${row.request}`,
        options: [act(row, 'approve', 'Let in', { request: row.request }, { kind: 'main' }), act(row, 'approve', 'Let in as owner', { request: row.request, owner: true }, OWNER)],
      }),
    });
    this.known = new Table('known', {
      caption: 'Who was let in or turned out', quiet: true, acts, key: (row) => `${row.platform}:${row.id}`, empty: 'Nobody was let in here.',
      columns: [WHO,
        { head: 'Is', of: ['state', 'owner'], draw: (row) => el('span', { class: row.state === 'revoked' ? 'wrong' : null }, row.state === 'revoked' ? 'turned out' : row.owner ? 'owner' : 'let in') },
        { head: 'For', of: ['at'], draw: (row) => since(row.at) }],
      choices: (row) => ({ about: `person ${row.platform}:${row.id}`, options: [this.change(row)] }),
    });
    $('pair').addEventListener('submit', (event) => {
      event.preventDefault();
      const code = $('pair-code').value.trim();
      if (code) acts.begin('/ops/api/people/act', { action: 'approve', code }, `code ${code}`, { name: 'Let in', of: 'who has this code' });
      $('pair-code').value = '';
    });
  }

  change(row) {
    const body = { person: `${row.platform}:${row.id}` };
    return row.state === 'revoked' ? act(row, 'allow', 'Let in again', body) : act(row, 'revoke', 'Turn out', body, { kind: 'danger', ...OUT });
  }

  load() {
    return ask('/ops/api/people');
  }

  show({ requests, people, settings }) {
    this.asking.show(requests);
    this.known.show(people);
    const lines = settings.map(bySettings);
    if ($('by-settings').textContent !== lines.join('')) $('by-settings').replaceChildren(...lines.map((line) => el('li', {}, line)));
  }

  again() {
    this.asking.show();
    this.known.show();
  }
}

/** What the settings of a platform say, in a sentence. */
export function bySettings({ platform, owners, allow, chats, unknown }) {
  const who = allow.includes('*') ? ['everybody may speak'] : [
    owners.length ? `owners: ${owners.map((each) => each.slice(platform.length + 1)).join(', ')}` : null,
    allow.length ? `allowed: ${allow.join(', ')}` : null,
    chats.length ? `everybody in: ${chats.join(', ')}` : null,
  ].filter(Boolean);
  const strangers = allow.includes('*') ? null : unknown === 'pair' ? 'strangers get a code' : 'strangers hear nothing';
  return `${platform}: ${[who.join('; ') || 'nobody is named', strangers].filter(Boolean).join('; ')}.`;
}
