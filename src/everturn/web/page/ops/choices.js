// The buttons of one row. An action that cannot be undone asks for confirmation once, below its row; a requested action says so until it is done.
import { button, el } from '../dom.js';
import { ACTION } from './texts.js';

export class Choices {
  constructor(acts, columns) {
    this.acts = acts;
    this.node = el('div', { class: 'choices' });
    this.cell = el('td', { role: 'cell', colspan: String(columns) });
    this.line = el('tr', { role: 'row', class: 'more' }, this.cell); // below the row, while there is something to say
    this.confirming = null;
    this.cell.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && this.confirming) {
        event.stopPropagation();
        this.ask(null);
      }
    });
  }

  /** `options`: {name, of (what it is done to), done (what is said then), path, body, kind, sure: {question, yes, no}}. */
  show(about, options) {
    const pending = this.acts.pending(about);
    const shape = JSON.stringify([about, options, pending?.name, this.acts.whyNot(about), this.confirming]);
    if (shape === this.shape) return;
    Object.assign(this, { shape, about, options });
    this.node.dataset.about = about;
    const here = [this.node, this.cell].some((each) => each.contains(document.activeElement));
    const focused = here ? document.activeElement.dataset.name ?? '' : null;
    const asked = pending ? null : options.find((each) => each.name === this.confirming);
    if (!asked) this.confirming = null;
    if (pending) this.node.replaceChildren(el('span', { class: 'faint pending', tabindex: '-1', 'data-name': pending.name }, ACTION.requested(pending.name)));
    else this.node.replaceChildren(...options.map((each) => this.button(each, asked)));
    this.below(asked ? this.question(asked) : [!pending && this.acts.whyNot(about)].filter(Boolean).map((error) => el('span', { class: 'why' }, ACTION.refused(error))));
    if (focused !== null) this.focus(focused);
  }

  below(kids) {
    this.cell.replaceChildren(...kids);
    if (kids.length) this.node.closest('tr').after(this.line);
    else this.line.remove();
  }

  button(each, asked) {
    const about = { class: each.kind ?? 'plain', disabled: Boolean(asked), 'data-name': each.name, 'aria-label': `${each.name}: ${each.of}` };
    return button(each.name, () => (each.sure ? this.ask(each.name) : this.act(each)), about);
  }

  question(each) {
    const yes = button(each.sure.yes, () => this.act(each), { class: 'danger', 'data-name': 'yes' });
    const no = button(each.sure.no, () => this.ask(null), { class: 'plain', 'data-name': 'no' });
    return [el('div', { class: 'choices' }, el('span', { class: 'question' }, each.sure.question), yes, no)];
  }

  ask(name) {
    const before = this.confirming;
    this.confirming = name;
    this.show(this.about, this.options);
    this.focus(name ? 'no' : before);
  }

  act(each) {
    this.confirming = null;
    this.acts.begin(each.path, each.body, this.about, each);
    this.show(this.about, this.options);
  }

  focus(name) {
    const all = [this.node, this.cell].flatMap((each) => [...each.querySelectorAll('[data-name]:not(:disabled)')]);
    (all.find((each) => each.dataset.name === name) ?? all[0])?.focus();
  }
}
