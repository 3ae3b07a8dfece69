// rich.js: what a bot writes becomes nodes of four kinds, and nothing that a hostile bot writes becomes anything else.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Element, makeDocument, tree } from './support/dom.mjs';
import { page, random } from './support/page.mjs';

makeDocument();
const { rich } = await page('rich.js');

const shown = (text) => rich(text).map(tree);
const textOf = (text) => rich(text).map((node) => node.textContent ?? node).join('');
const links = (text) => rich(text).filter(({ tagName }) => tagName === 'A').map(({ href }) => href);

test('plain text stays one text', () => {
	for (const text of ['Hello.', 'two\nlines', '* a list', '# no heading', '_no emphasis_', '~~no~~', '> no quote', '![no](picture)']) {
		assert.deepEqual(rich(text), [text]);
	}
	assert.deepEqual(rich(''), []);
});

test('bold, code, links and addresses become elements, with the text between them', () => {
	assert.deepEqual(shown('a **b** c `d` e'), ['a ', ['strong', '', 'b'], ' c ', ['code', '', 'd'], ' e']);
	assert.deepEqual(shown('**a**`b`'), [['strong', '', 'a'], ['code', '', 'b']]);
	assert.deepEqual(shown('see [the page](https://a.example/x?y=1#z)'), ['see ', ['a', '', 'the page']]);
	assert.deepEqual(shown('at http://a.example/x.'), ['at ', ['a', '', 'http://a.example/x'], '.']);
});

test('links open another tab that learns nothing of this one, and tell where they lead', () => {
	const [link] = rich('[https://good.example](https://evil.example/path)');
	assert.equal(link.textContent, 'https://good.example');
	assert.deepEqual([link.href, link.title], ['https://evil.example/path', 'evil.example']);
	assert.deepEqual([link.target, link.rel], ['_blank', 'noopener noreferrer']);
});

test('an address ends before the punctuation of its sentence', () => {
	for (const end of ['.', ',', ';', ':', '!', '?', ')', ']', '*', '"', "'", '`', '>', '...', ').']) {
		assert.deepEqual(links(`(https://a.example/b${end} more`), ['https://a.example/b'], end);
	}
	assert.deepEqual(links('https://a.example/b(c)d?e=f.g'), ['https://a.example/b(c)d?e=f.g']);
});

test('addresses of other kinds are no links', () => {
	const kinds = [
		'javascript:alert(1)', 'JavaScript:alert(1)', 'data:text/html,<b>', 'vbscript:x', 'file:///etc/passwd', 'blob:https://a', '//a.example',
		'ftp://a.example', '/path', '#hash', ' https://a.example', 'ｈttps://a', 'java\tscript:alert(1)',
	];
	for (const address of kinds) {
		// What follows `blob:` may be an address itself.
		for (const { href, textContent } of rich(`[x](${address})`).filter(({ tagName }) => tagName)) {
			assert.ok(textContent !== 'x' && href.startsWith('https://a'), `${address}: ${href}`);
		}
	}
	for (const address of ['javascript:alert(1)', 'data:text/html,x', 'ftp://a.example']) assert.deepEqual(links(address), []);
});

test('an address that cannot be one stays text', () => {
	for (const wrong of ['https://', 'http://[x', 'https://a:99999999', 'https://%zz']) {
		assert.deepEqual(links(`[x](${wrong})`), [], wrong);
		assert.deepEqual(links(wrong), [], wrong);
	}
	assert.equal(textOf('[x](https://a:99999999)'), 'x');
});

test('the label of a link has an end, so that brackets without one cost little', () => {
	const label = (length) => links(`[${'x'.repeat(length)}](https://a.example)`);
	assert.deepEqual([label(200), label(201)], [['https://a.example'], ['https://a.example']]);
	assert.equal(rich(`[${'x'.repeat(200)}](https://a.example)`).length, 1);
	assert.equal(textOf(`[${'x'.repeat(201)}](https://a.example)`), `[${'x'.repeat(201)}](https://a.example)`);
	assert.deepEqual(rich('['.repeat(4000)), ['['.repeat(4000)]);
});

test('markup is text', () => {
	for (const markup of ['<img src=x onerror=alert(1)>', '<script>alert(1)</script>', '&lt;b&gt;', '**<b>x</b>**', '`<i>`', '[<u>](https://a.example)']) {
		const nodes = rich(markup);
		const tags = nodes.filter((node) => node instanceof Element).flatMap((node) => [node, ...node.all()]).map(({ tagName }) => tagName);
		assert.ok(tags.every((tag) => ['STRONG', 'CODE', 'A'].includes(tag)), `${markup}: ${tags}`);
	}
	assert.equal(textOf('**<b>x</b>** `<i>`'), '<b>x</b> <i>');
});

test('marks without an end, across lines or around nothing are text', () => {
	for (const text of ['**a', 'a**', '****', '**a\nb**', '`a\nb`', '``', '[a]', '[a](', '[a](https://b', '[](https://b.example)', '[a\nb](x)']) {
		assert.ok(rich(text).every((node) => typeof node === 'string' || node.tagName === 'A'), text);
		assert.equal(textOf(text), text);
	}
});

test('no character of a bot is lost, but those of marks', () => {
	const next = random(5);
	const pieces = ['*', '**', '`', '[', ']', '(', ')', 'https://', 'http://a.example', '<', '>', '"', ' ', '\n', 'x', 'ü', '.', '&', '\u202e', '\0'];
	for (let round = 0; round < 5000; round++) {
		const text = Array.from({ length: next(14) }, () => pieces[next(pieces.length)]).join('');
		let at = 0;
		for (const node of rich(text)) {
			const part = node.textContent ?? node;
			const found = text.indexOf(part, at);
			assert.ok(found >= at, JSON.stringify(text));
			if (typeof node === 'string') assert.notEqual(node, '');
			else {
				assert.ok(['STRONG', 'CODE', 'A'].includes(node.tagName), JSON.stringify(text));
				assert.deepEqual(node.children, []);
				assert.ok(node.tagName !== 'A' || /^https?:\/\//.test(node.href), JSON.stringify(text));
			}
			at = found + part.length;
		}
	}
});

/** What an element has that a new one of its tag has not. */
function changed(element) {
	const plain = new Element(element.tagName);
	const isSame = (name) => Object.is(element[name], plain[name]) || ['dataset', 'style', 'classList', 'childNodes'].includes(name);
	return Object.keys(element).filter((name) => !isSame(name) && name !== 'attributes').concat([...element.attributes.keys()]);
}

/** Checks what the page makes of any text: its parts in order, in elements that do nothing but lead to a web page. */
function check(text) {
	const shown = JSON.stringify(text.slice(0, 200));
	const nodes = rich(text);
	let [at, bytes] = [0, 0];
	for (const node of nodes) {
		const part = node.textContent ?? node;
		const found = text.indexOf(part, at);
		assert.ok(found >= at, `out of order: ${shown}`);
		at = found + part.length;
		bytes += part.length;
		if (typeof node === 'string') continue;
		assert.ok(['STRONG', 'CODE', 'A'].includes(node.tagName), `${node.tagName}: ${shown}`);
		assert.deepEqual(node.children, [], shown);
		assert.deepEqual([...node.dataset ? Object.keys(node.dataset) : []], [], shown);
		const known = node.tagName === 'A' ? ['href', 'rel', 'target', 'title'] : [];
		assert.deepEqual(changed(node).filter((name) => !known.includes(name) && name !== 'className'), [], shown);
		assert.equal(node.className, '', shown);
		if (node.tagName !== 'A') continue;
		assert.ok(['http:', 'https:'].includes(new URL(node.href).protocol), `${node.href}: ${shown}`);
		assert.deepEqual([node.target, node.rel], ['_blank', 'noopener noreferrer'], shown);
		// A name of other letters is longer in the form that the link shows, by a factor.
		assert.ok(text.includes(node.href) && node.title.length <= 8 * node.href.length + 16, shown);
		bytes += node.href.length + node.title.length;
	}
	assert.ok(nodes.length <= text.length + 1 && bytes <= 10 * text.length + 16, `${nodes.length} nodes, ${bytes} characters: ${shown}`);
}

const SEEDS = [
	'Hello **Ann**, run `ls -l`, see [the page](https://a.example/x?y=1#z) or http://b.example.',
	'[x](javascript:alert(1)) **[y](https://a.example)** `**z**` [**b**](https://a.example/`c`)',
	'<img src=x onerror=alert(1)> &lt;b&gt; <script>alert(1)</script> <a href="https://a.example" onclick=x>y</a>',
	'[a" onclick="x](https://a.example/"onmouseover="y) https://a.example/\'><svg/onload=x>',
	'[a](https://user:word@evil.example@good.example/) [b](https://ü.example/ü) https://[::1]:8080/ [c](http:\\\\a.example)',
	'* one\n* **two\n* `three\n> [four](\n# https://a.example/a_b_(c)\n![five](https://a.example/5.png)',
	'\u202e[\u0000](https://a.example)\u2028**\u2029** ｈttps://a.example java\tscript:x data:text/html,x vbscript:x',
];
const PIECES = [
	'*', '**', '`', '[', ']', '(', ')', '](', '](https://', '](javascript:', 'https://', 'http://a.example', 'javascript:alert(1)', 'data:', 'on',
	'onerror=', '<', '>', '<script>', '"', "'", '&', '=', ' ', '\n', '\t', '\0', '\\', 'x', 'ü', '.', '/', '@', '%', '\u202e', '\ud800', '😀',
];

test('whatever a bot writes, its text has no active content', () => {
	const next = random(34);
	const any = (list) => list[next(list.length)];
	for (const seed of SEEDS) check(seed);
	for (let round = 0; round < 20000; round++) {
		let text = next(3) ? any(SEEDS) : '';
		for (let change = next(6); change >= 0; change--) {
			const [from, to] = [next(text.length + 1), next(text.length + 1)];
			text = [
				() => text.slice(0, from) + any(PIECES) + text.slice(from),
				() => text.slice(0, from) + text.slice(to),
				() => text.slice(0, from) + any(PIECES).repeat(next(12)) + text.slice(from),
				() => any(SEEDS).slice(0, from) + text.slice(to),
			][next(4)]();
		}
		check(text.slice(0, 400));
	}
});

test('the cost of a text grows with its length alone', () => {
	// Growth beyond linear would take minutes at this length.
	const LENGTH = 64 * 1024;
	const stretched = SEEDS.flatMap((seed) => [
		seed.repeat(LENGTH / seed.length),
		...PIECES.map((piece, nth) => {
			const at = (seed.length * (nth % 8)) >> 3;
			return seed.slice(0, at) + piece.repeat(LENGTH / piece.length) + seed.slice(at);
		}),
	]);
	// The longest label, with an address that never ends, again and again.
	const label = `${'['.repeat(200)}](https://${'b'.repeat(2000)}`;
	for (const text of [...stretched, label.repeat(LENGTH / label.length), `[a](https://${'b'.repeat(LENGTH)}`, `https://${'.'.repeat(LENGTH)}`]) {
		const began = process.cpuUsage().user;
		const nodes = rich(text);
		const ms = (process.cpuUsage().user - began) / 1000;
		assert.ok(ms < 2000, `${JSON.stringify(text.slice(0, 40))}: ${ms} ms`);
		assert.ok(nodes.length <= text.length + 1);
	}
});

test('long hostile texts take no long time', () => {
	// The transcript hands over up to 4000 characters.
	for (const piece of ['*', '**a', '`a', '[', '[a](', 'https://.', 'https://a.', '[a](https://', '**`[', 'http://]]]']) {
		const text = piece.repeat(4000 / piece.length);
		const began = process.cpuUsage().user;
		rich(text);
		const ms = (process.cpuUsage().user - began) / 1000;
		assert.ok(ms < 1000, `${piece}: ${ms} ms`);
	}
});
