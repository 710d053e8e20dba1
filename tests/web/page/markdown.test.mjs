// The page's Markdown: what people and models write, and what an enemy writes.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inline, parse, safeLink } from '../../../src/everturn/web/page/markdown.js';

const plain = (kids) => kids.map((kid) => kid.text ?? (kid.kids ? plain(kid.kids) : '')).join('');
const shape = (text) => parse(text).map(({ source, ...block }) => block);
const FILE = '/files/AAAAAAAAAAAAAAAAAAAAAA/cat.png';

test('blocks are told apart', () => {
  const text = '# Title\n\nwords\nmore\n\n- a\n- b\n  - c\n\n1. one\n2. two\n\n> quoted\n\n---\n\n```py\nx = 1\n```\n\n| a | b |\n|---|:-:|\n| 1 | 2 |';
  assert.deepEqual(parse(text).map((block) => block.kind), ['heading', 'paragraph', 'list', 'list', 'quote', 'rule', 'code', 'table']);
});

test('a list may nest, number on, and have tasks', () => {
  const [list] = shape('3. three\n4. four\n   - inner\n');
  assert.deepEqual([list.ordered, list.start, list.items.length], [true, 3, 2]);
  assert.equal(list.items[1].blocks[1].kind, 'list');
  assert.deepEqual(shape('- [x] done\n- [ ] open')[0].items.map((item) => item.task), [true, false]);
});

test('a code block keeps its text, also before it is closed', () => {
  assert.deepEqual(shape('```js\n<b>\n```'), [{ kind: 'code', language: 'js', text: '<b>' }]);
  assert.deepEqual(shape('```\nhalf'), [{ kind: 'code', language: '', text: 'half' }]);
});

test('emphasis, code and escapes', () => {
  assert.deepEqual(inline('a **b** _c_ `d*` ~~e~~ \\*f').map((kid) => kid.kind), ['text', 'strong', 'text', 'em', 'text', 'code', 'text', 'strike', 'text']);
  assert.equal(plain(inline('2 * 3 * 4 and snake_case_name')), '2 * 3 * 4 and snake_case_name');
  assert.equal(plain(inline('**open and *shut')), '**open and *shut');
});

test('links lead to the web, to mail and to our own files only', () => {
  for (const good of ['https://a.example/x?y=1', 'http://a.example', 'mailto:a@b.example', FILE]) assert.equal(safeLink(good), good);
  const bad = ['javascript:alert(1)', 'JaVaScRiPt:alert(1)', 'java\nscript:alert(1)', '\u0001javascript:alert(1)', 'data:text/html,x', 'vbscript:x', 'file:///etc/passwd', '//evil.example', '/control/stop', '/files/../control/stop', '/files/AAAAAAAAAAAAAAAAAAAAAA/../x', '\\\\evil', 'https:/evil', 'blob:x', ''];
  for (const url of bad) assert.equal(safeLink(url), null, url);
});

test('a link that may not be followed stays text', () => {
  for (const text of ['[x](javascript:alert(1))', '![x](javascript:alert(1))', '<javascript:alert(1)>', '[x](data:text/html,<script>alert(1)</script>)']) {
    assert.ok(inline(text).every((kid) => kid.kind !== 'link' && kid.kind !== 'image'), text);
    assert.ok(plain(inline(text)).includes('x') || plain(inline(text)).includes('javascript'));
  }
});

test('a picture from elsewhere is a link, one of ours is a picture', () => {
  assert.equal(inline('![x](https://spy.example/p.png)')[0].kind, 'link');
  assert.deepEqual(inline(`![cat](${FILE})`), [{ kind: 'image', src: FILE, alt: 'cat' }]);
});

test('bare addresses end where the sentence goes on', () => {
  const kids = inline('see https://a.example/b_c_(d), or (https://a.example).');
  assert.deepEqual(kids.filter((kid) => kid.kind === 'link').map((kid) => kid.href), ['https://a.example/b_c_(d)', 'https://a.example']);
});

test('HTML is text', () => {
  const [block] = shape('<script>alert(1)</script> <img src=x onerror=alert(1)>');
  assert.equal(block.kind, 'paragraph');
  assert.equal(plain(block.kids), '<script>alert(1)</script> <img src=x onerror=alert(1)>');
});

// Processor time: a clock on the wall counts what other processes do meanwhile.
const milliseconds = (text) => Math.min(...[1, 2, 3].map(() => {
  const started = process.cpuUsage();
  parse(text);
  const { user, system } = process.cpuUsage(started);
  return (user + system) / 1000;
}));

// Each is written n characters long: four times as much must not take sixteen times as long.
const HOSTILE = {
  'a table of many columns': (n) => `${'|a'.repeat(n / 6)}|\n${'|-'.repeat(n / 6)}|\n${'|b'.repeat(n / 6)}|`,
  'a table of many columns and many short rows': (n) => `${'|a'.repeat(n / 6)}|\n${'|-'.repeat(n / 6)}|\n${'|\n'.repeat(n / 6)}`,
  'signs of addresses in plain text': (n) => 'ahttp://'.repeat(n / 8),
  'underlines in plain text': (n) => 'a_b'.repeat(n / 3),
  'stars in plain text': (n) => 'a* '.repeat(n / 3),
  'spaces in a heading': (n) => `# a${' '.repeat(n)}b`,
  'signs in a heading': (n) => `# ${' #'.repeat(n / 2)}b`,
  'spaces behind a fence': (n) => `~~~${' '.repeat(n)}\``,
  'a long fence that is none': (n) => `${'~'.repeat(n)}\``,
  'brackets': (n) => '['.repeat(n / 2) + ']'.repeat(n / 2),
  'spaces in a link': (n) => `[a](${' '.repeat(2900)}b c`.repeat(n / 2900),
  'stops behind an address': (n) => `http://a.b/${'.'.repeat(1900)}x `.repeat(n / 1900),
  'links in brackets': (n) => '[a](b '.repeat(n / 6),
};

for (const [name, write] of Object.entries(HOSTILE)) {
  test(`what is hostile takes time that grows with the text: ${name}`, () => {
    const [little, much] = [milliseconds(write(12_000)), milliseconds(write(48_000))];
    assert.ok(much < 9 * Math.max(little, 10), `${little} ms, then ${much} ms`);
  });
}

test('a fence may be as long as the text', () => {
  assert.equal(shape(`${'~'.repeat(100_000)}\ncode`)[0].text, 'code');
});

test('a bracket that is not closed hides no link behind it', () => {
  assert.equal(inline('[a [b](https://a.example)').at(-1).kind, 'link');
});

test('what is hostile takes no time', () => {
  const started = performance.now();
  for (const piece of ['*', '_', '**', '[', '![', '`', '```\n', '> ', '- ', '|', '(', '[a](', '<', '~~', '\\', '*a_', '#', '1. ', '\n', '[[]', '**a ', '`a']) parse(piece.repeat(20_000));
  parse(`${'> '.repeat(500)}x\n`.repeat(20));
  parse(`${'  '.repeat(50)}- x\n`.repeat(2000));
  assert.ok(performance.now() - started < 60_000);
});

test('a very long text is shown as it is', () => {
  assert.equal(parse('x'.repeat(400_000))[0].kind, 'plain');
});

test('blocks know their source, so that a stream redraws the last one only', () => {
  const one = parse('first\n\nsecond par');
  const two = parse('first\n\nsecond paragraph');
  assert.equal(one[0].source, two[0].source);
  assert.notEqual(one[1].source, two[1].source);
});
