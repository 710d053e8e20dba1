// The buttons of one row. What cannot be taken back asks once, in the same place; what was asked for says so until it is done.
import { el } from '../dom.js';

export class Choices {
  constructor(acts) {
    this.acts = acts;
    this.node = el('div', { class: 'choices' });
    this.asking = null;
    this.node.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && this.asking) {
        event.stopPropagation();
        this.ask(null);
      }
    });
  }

  /** `options`: {name, of (what it is done to, for a screen reader), path, body, kind, sure: {question, yes, no}}. */
  show(about, options) {
    const pending = this.acts.pending(about);
    const shape = JSON.stringify([about, options, pending?.name, this.acts.whyNot(about), this.asking]);
    if (shape === this.shape) return;
    this.shape = shape;
    this.about = about;
    this.options = options;
    const focused = this.node.contains(document.activeElement) ? document.activeElement.dataset.name ?? '' : null;
    const asked = options.find((each) => each.name === this.asking);
    this.node.classList.toggle('tall', Boolean(asked || this.acts.whyNot(about)));
    if (!asked) this.asking = null;
    if (pending) this.node.replaceChildren(el('span', { class: 'faint pending', tabindex: '-1', 'data-name': pending.name }, `${pending.name}: asked, not yet done`));
    else if (asked) this.node.replaceChildren(...this.question(asked));
    else this.node.replaceChildren(...options.map((each) => this.button(each)), this.refusal(about));
    if (focused !== null) this.focus(focused);
  }

  refusal(about) {
    const words = this.acts.whyNot(about);
    return words ? el('span', { class: 'why' }, words) : '';
  }

  button(each) {
    const button = el('button', { type: 'button', class: each.kind ?? 'plain', 'data-name': each.name, 'aria-label': `${each.name}: ${each.of}` }, each.name);
    button.addEventListener('click', () => (each.sure ? this.ask(each.name) : this.act(each)));
    return button;
  }

  question(each) {
    const yes = el('button', { type: 'button', class: 'danger', 'data-name': 'yes' }, each.sure.yes);
    const no = el('button', { type: 'button', class: 'plain', 'data-name': 'no' }, each.sure.no);
    yes.addEventListener('click', () => this.act(each));
    no.addEventListener('click', () => this.ask(null));
    return [el('span', { class: 'question' }, each.sure.question), yes, no];
  }

  ask(name) {
    const before = this.asking;
    this.asking = name;
    this.show(this.about, this.options);
    this.focus(name ? 'no' : before);
  }

  act(each) {
    this.asking = null;
    this.acts.begin(each.path, each.body, this.about, each.name);
    this.show(this.about, this.options);
  }

  focus(name) {
    const all = [...this.node.querySelectorAll('[data-name]')];
    (all.find((each) => each.dataset.name === name) ?? all[0])?.focus();
  }
}
