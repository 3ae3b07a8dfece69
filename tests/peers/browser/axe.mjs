// Accessibility of a page by axe-core: WCAG 2.2 AA and best practices.

import { readFileSync } from 'node:fs';

const SOURCE = readFileSync(new URL('node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');
// Playwright takes the text of an expression, the tabs of firefox.mjs that of a function.
const INJECT = `() => { ${SOURCE} }`;
const TAGS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
/** Rules whose verdict depends on colours and sizes. All others say the same of the same elements in each. */
const APPEARANCE = ['color-contrast', 'link-in-text-block', 'scrollable-region-focusable', 'target-size'];

/** Fails with each violation and where it is. `state` says when it was looked for. With `isJudged` all rules have judged these elements in
	other colours or in another size, and only those of appearance do so again. */
export async function assertAccessible(page, state, isJudged = false) {
	if (!await page.evaluate(() => Boolean(globalThis.axe))) await page.evaluate('context' in page ? `(${INJECT})()` : INJECT);
	const violations = await page.evaluate(async (rules) => {
		// Style sheets are the page's own, so none has to be loaded again.
		const { violations: found } = await globalThis.axe.run(document, { runOnly: rules, preload: false, resultTypes: ['violations'] });
		return found.map(({ id, help, nodes }) => `${id} (${help}): ${nodes.map(({ html, any, all, none }) => (
			`${html.slice(0, 160)} ${[...any, ...all, ...none].map(({ message }) => message).join('; ').slice(0, 240)}`)).join(' | ')}`);
	}, isJudged ? { type: 'rule', values: APPEARANCE } : { type: 'tag', values: TAGS });
	if (violations.length) throw new Error(`axe, ${state}:\n${violations.join('\n')}`);
}
