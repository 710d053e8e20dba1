// Every text of the chat and login pages that their HTML does not hold. A translator changes this file, index.html and login.html.

export const LINE = {
  answered: (status) => `the gateway answered ${status}`,
  disconnected: 'Disconnected, reconnecting. What you write is kept in this browser, and sent when the gateway is back.',
  loggedOut: 'You are logged out. Run “everturn login” on the machine of the gateway, and open the link it prints. What you wrote is kept.',
  noRoom: 'This browser has no room to keep what you wrote: do not reload before it is sent.',
};

export const LOGIN = {
  busy: 'Logging in …',
  noAnswer: 'The gateway does not answer. Check that it is running, then open the link again.',
  answered: (status) => `The gateway answered ${status}.`,
  already: 'You are logged in already: go to the page',
  how: 'Run “everturn login” on the machine of the gateway, and open the link it prints.',
};

export const PAGE = {
  untitled: 'New conversation',
  title: (title, news) => `${news ? '● ' : ''}${title} · Everturn`,
  ideas: ['What can you do?', '/help'],
  approvalRequested: 'The agent requests your approval.',
  disconnected: 'disconnected',
};

/** The state of a turn, or of a conversation in the list. */
export const STATES = {
  running: 'running', working: 'running', awaiting_approval: 'awaiting approval', interrupted: 'interrupted', resume_pending: 'interrupted', suspended: 'suspended', queued: 'queued',
};

export const LIST = {
  attention: (n) => (n === 1 ? 'needs attention' : 'need attention'),
  noMatch: 'No conversation matches.',
  empty: 'Your conversations appear here.',
  untitled: 'Untitled',
};

/** A message's sign and state. */
export const STATUS = {
  sending: ['○', 'sending'],
  saved: ['✓', 'saved'],
  answered: ['✓✓', 'answered'],
  failed: ['!', 'not answered'],
  stopped: ['■', 'stopped'],
  refused: ['!', 'not sent'],
};

/** What stands below a turn in this state. */
export const TURNS = {
  interrupted: 'The gateway was interrupted here, and will resume.',
  awaiting_approval: 'Awaiting your approval.',
  stopped: 'Stopped.',
  failed: 'The agent failed: no answer.',
  suspended: 'This conversation was suspended.',
  rolled_back: 'Undone.',
};

export const ITEM = {
  you: 'You: ', agent: 'Everturn: ', working: 'running', resumed: 'Interrupted, then resumed.',
  edit: 'Edit', editLabel: 'Edit and send again', change: 'Change it', drop: 'Drop it', timeline: 'Timeline', copyAnswer: 'Copy the answer',
  summary: 'Summary of the earlier conversation', nothing: '(nothing)',
};

export const CALL = {
  arguments: 'Arguments', result: 'Result',
  states: { unknown: 'outcome unknown', failed: 'failed', skipped: 'not run', done: 'done', running: 'running', awaiting_approval: 'awaiting approval', unfinished: 'not finished' },
};

export const APPROVAL = {
  label: 'Approval request',
  asks: ' requests your approval:',
  hint: (until) => `Any other message closes this request.${until ? ` It expires at ${until}.` : ''}`,
  allow: 'Allow', allowSession: 'Allow in this conversation', deny: 'Deny',
};

export const BOX = {
  steer: 'Steer: your message joins the running turn', write: 'Write a message',
  picture: 'picture.png',
  tooLarge: (megabytes) => `larger than ${megabytes} MB`,
  disconnected: 'disconnected', again: 'Try again', remove: (name) => `Remove ${name}`,
};

export const COPY = { name: 'Copy', done: 'Copied', refused: 'Not allowed' };
export const AGE = { now: 'now', minutes: (n) => `${n} min`, hours: (n) => `${n} h`, days: (n) => `${n} d` };
export const MARKDOWN = { noLanguage: 'text', copyCode: 'Copy the code', table: 'Table', picture: 'picture', file: 'file' };
