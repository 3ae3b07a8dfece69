// All scripts of the page: each parses, names only exports that there are, and uses of other files only what they have.

import assert from 'node:assert/strict';
import test from 'node:test';
import { stopClock } from './support/clock.mjs';
import { makeDocument } from './support/dom.mjs';
import { page, scripts, setGlobal, source } from './support/page.mjs';

makeDocument();
// No script of the page runs on after its test.
stopClock();
setGlobal('registerProcessor', () => {});
setGlobal('AudioWorkletProcessor', class {});
setGlobal('fetch', async () => { throw new TypeError('no runner'); });

/** The names that a script exports. */
const exportsOf = (name) => [...source(name).matchAll(/^export (?:async )?(?:const|let|function|class) ([\w$]+)/gm)].map(([, own]) => own);

/** Each import of a script: the file, and its names, or the name of all. */
function importsOf(name) {
	const text = source(name);
	const listed = [...text.matchAll(/^import \{([^}]*)\} from '\.\/([\w-]+\.js)';/gm)]
		.map(([, names, from]) => ({ from, names: names.split(',').map((own) => own.trim().split(' as ')[0]).filter(Boolean) }));
	const all = [...text.matchAll(/^import \* as (\w+) from '\.\/([\w-]+\.js)';/gm)]
		.map(([, own, from]) => ({ from, names: [...new Set([...text.matchAll(new RegExp(`(?<![\\w.'/])${own}\\.(\\w+)`, 'g'))].map(([, used]) => used))] }));
	const late = [...text.matchAll(/\(await import\('\.\/([\w-]+\.js)'\)\)\.(\w+)/g)].map(([, from, own]) => ({ from, names: [own] }));
	const taken = [...text.matchAll(/const \{([^}]*)\} = await import\('\.\/([\w-]+\.js)'\)/g)]
		.map(([, names, from]) => ({ from, names: names.split(',').map((own) => own.trim()) }));
	return [...listed, ...all, ...late, ...taken];
}

test('the page has its scripts', () => assert.ok(scripts.length >= 33 && scripts.includes('app.js'), scripts.join()));

for (const name of scripts) {
	test(`${name} parses, and its imports are exported`, async () => {
		// What a file does to a page is not judged here: linking comes before running.
		await page(name).catch((error) => {
			if (error instanceof SyntaxError || /ERR_MODULE_NOT_FOUND|ENOENT/.test(error.code)) throw error;
		});
	});

	test(`${name} uses what other files have`, () => {
		const imported = importsOf(name);
		assert.equal(imported.length, (source(name).match(/^import .* from '\.\/|\bimport\('\.\//gm) ?? []).length, 'each import was read');
		for (const { from, names } of imported) {
			assert.ok(scripts.includes(from), `${name} imports ${from}`);
			for (const used of names) assert.ok(exportsOf(from).includes(used), `${from} exports no ${used}`);
		}
	});
}

test('every export is used by another file', () => {
	const used = new Set(scripts.flatMap((name) => importsOf(name).flatMap(({ from, names }) => names.map((own) => `${from} ${own}`))));
	for (const ofTests of ['qr.js modules', 'charts.js roundUp']) used.add(ofTests);
	const unused = scripts.flatMap((name) => exportsOf(name).map((own) => `${name} ${own}`)).filter((own) => !used.has(own));
	assert.deepEqual(unused, []);
});

test('the page asks for elements that index.html has', () => {
	const html = source('index.html');
	const missing = [];
	let asked = 0;
	for (const name of scripts.filter((own) => own !== 'setup.js')) {
		for (const [, id] of source(name).matchAll(/(?:\$|\bon)\('([\w-]+)'/g)) {
			asked += 1;
			if (!html.includes(`id="${id}"`)) missing.push(`${name} ${id}`);
		}
	}
	assert.deepEqual(missing, []);
	assert.ok(asked > 100, `${asked}`);
	const setup = source('setup.html');
	for (const [, id] of source('setup.js').matchAll(/(?:\$|\bon)\('([\w-]+)'/g)) assert.ok(setup.includes(`id="${id}"`), id);
});
