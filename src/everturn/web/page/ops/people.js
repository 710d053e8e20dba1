// Who may write on chat platforms: access requests, approved and revoked people. Fetched when somebody looks at it.
import { $, el } from '../dom.js';
import { ask } from '../line.js';
import { faint } from './lists.js';
import { Table, since } from './table.js';
import { CAPTIONS, HEAD, LIST, PEOPLE, bySettings } from './texts.js';

const called = (row) => row.name || row.person || row.id;
const act = (row, action, body, texts, kind) => ({ of: called(row), path: '/ops/api/people/act', body: { action, ...body }, kind, ...texts });

const PERSON = { head: HEAD.person, of: ['name', 'platform', 'person', 'id'], draw: (row) => [called(row), faint(`${row.platform}:${row.person ?? row.id}`)] };

export class People {
  constructor(acts) {
    this.requests = new Table('requests', {
      caption: CAPTIONS.requests, quiet: true, acts, key: (row) => row.request, empty: LIST.noRequests,
      columns: [PERSON, { head: HEAD.requested, of: ['asked_at'], draw: (row) => [since(row.asked_at), LIST.ago] }],
      choices: (row) => ({
        about: `request ${row.request}`,
        options: [act(row, 'approve', { request: row.request }, PEOPLE.approve, 'main'), act(row, 'approve', { request: row.request, owner: true }, PEOPLE.approveOwner)],
      }),
    });
    this.known = new Table('known', {
      caption: CAPTIONS.people, quiet: true, acts, key: (row) => `${row.platform}:${row.id}`, empty: LIST.noPeople,
      columns: [PERSON,
        { head: HEAD.state, of: ['state', 'owner'], draw: (row) => el('span', { class: row.state === 'revoked' ? 'wrong' : null }, row.state === 'revoked' ? PEOPLE.revoked : row.owner ? PEOPLE.owner : PEOPLE.approved) },
        { head: HEAD.duration, of: ['at'], draw: (row) => since(row.at) }],
      choices: (row) => ({ about: `person ${row.platform}:${row.id}`, options: [this.change(row)] }),
    });
    $('pair').addEventListener('submit', (event) => {
      event.preventDefault();
      const code = $('pair-code').value.trim();
      if (code) acts.begin('/ops/api/people/act', { action: 'approve', code }, `code ${code}`, { ...PEOPLE.approve, of: PEOPLE.ofCode });
      $('pair-code').value = '';
    });
  }

  change(row) {
    const body = { person: `${row.platform}:${row.id}` };
    return row.state === 'revoked' ? act(row, 'allow', body, PEOPLE.approveAgain) : act(row, 'revoke', body, PEOPLE.revoke, 'danger');
  }

  load() {
    return ask('/ops/api/people');
  }

  show({ requests, people, settings }) {
    this.requests.show(requests);
    this.known.show(people);
    const lines = settings.map(bySettings);
    if ($('by-settings').textContent !== lines.join('')) $('by-settings').replaceChildren(...lines.map((line) => el('li', {}, line)));
  }

  again() {
    this.requests.show();
    this.known.show();
  }
}
