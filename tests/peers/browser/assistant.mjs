// The built-in page in a call with an assistant: which bot answers, its states, a function, the time to its first sound, and
// the notice about a third party. Prints what was seen, as JSON; exits with 1 otherwise.
//
//   node assistant.mjs URL [FILE]      the page; FILE is for a picture
//
// The service is on this machine, so `/status` is changed on its way to the page for the notice.

import { withBrowser } from './chromium.mjs';
import { assertFits, connect, open, text } from './page.mjs';
import { until } from './runner.mjs';

const [, , url, picture] = process.argv;
const PARTY = 'speech.example';
const LIMIT_MS = 60000;

await withBrowser(async (context) => {
	const { page, faults } = await open(context, url);
	if (await page.locator('#notice').isVisible()) throw new Error('a notice, though speech stays on this machine');
	await page.route('**/status', async (route) => {
		const reply = await route.fetch();
		await route.fulfill({ json: { ...await reply.json(), speech_to: [PARTY] } });
	});
	await connect(page, url);
	const states = new Set();
	let shown;
	await until(async () => {
		states.add(await page.locator('#bot .state').innerText());
		shown = await text(page, 'transcript');
		const seen = /Function[^]*done after [^]*answer/.test(shown) && (await text(page, 'waited')).startsWith('first sound after');
		return seen && ['Listening', 'Thinking', 'Speaking'].every((state) => states.has(state));
	}, 'all states, a function and an answer', LIMIT_MS);
	if (picture) await page.screenshot({ path: picture, animations: 'disabled' });
	const notice = await text(page, 'notice');
	if (!notice.includes(PARTY) || !notice.includes('third party')) throw new Error(notice);
	if ((await text(page, 'bot-name')) !== 'realtime') throw new Error('another bot');
	await assertFits(page);
	if (faults.length) throw new Error(faults.join('\n'));
	console.log(JSON.stringify({ states: [...states], waited: await text(page, 'waited') }));
});
