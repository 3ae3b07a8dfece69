// The page and rooms: it starts the session and shows where it takes place. A small server plays
// the provider; the media-room server is not contacted before a user joins.

import { createServer } from 'node:http';
import { shoot, text } from './page.mjs';

/** A provider of video rooms that says yes to everything. */
export async function serveProvider() {
	const server = createServer((request, reply) => {
		request.resume();
		const said = request.url === '/meeting-tokens'
			? { token: 'TOKEN' }
			: { name: 'bot-1', privacy: 'public', url: 'https://rooms.example/bot-1', config: {} };
		reply.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(said));
	});
	await new Promise((done) => server.listen(0, '127.0.0.1', done));
	return { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}

async function start(page, runner, transport) {
	await page.goto(`${runner.url}/client/?transport=${transport}`);
	await page.locator('#server[data-ok=true]').waitFor();
	await page.locator('#connect').click();
	await page.locator('#problem').waitFor();
	const title = await text(page, 'problem-title');
	if (title !== 'The bot is on its way into the room') throw new Error(`“${title}”: ${await text(page, 'problem-text')}`);
}

export const mediaEnv = { MEDIAROOM_URL: 'ws://127.0.0.1:1', MEDIAROOM_API_KEY: 'devkey', MEDIAROOM_API_SECRET: 'secret' };

export const mediaChecks = {
	async 'room: the page begins a session in a media room and shows how to join'(context, runner, out) {
		const page = await context.newPage();
		await start(page, runner, 'mediaroom');
		const [url, room, token] = await page.locator('#problem-steps code').allInnerTexts();
		if (url !== mediaEnv.MEDIAROOM_URL || !room.startsWith('room-')) throw new Error(`${url}, ${room}`);
		const claims = JSON.parse(Buffer.from(token.split('.')[1], 'base64url'));
		if (claims.video.room !== room || claims.iss !== 'devkey') throw new Error(JSON.stringify(claims));
		await shoot(page, out, 'mediaroom');
	},
};

export const videoEnv = (provider) => ({ VIDEOROOM_API_URL: provider.url, VIDEOROOM_API_KEY: 'key' });

export const videoChecks = {
	async 'room: the page begins a session in a video room and links to it'(context, runner, out) {
		const page = await context.newPage();
		await start(page, runner, 'videoroom');
		const link = await page.locator('#problem-steps a').getAttribute('href');
		if (link !== 'https://rooms.example/bot-1?t=TOKEN') throw new Error(link);
		await shoot(page, out, 'videoroom');
	},

	async 'room: choosing a video room in the options asks for a new one, and choosing another takes that back'(context, runner) {
		const page = await context.newPage();
		await page.goto(`${runner.url}/client/`);
		await page.locator('#options summary').click();
		await page.locator('input[value=videoroom]').check();
		const request = JSON.parse(await page.locator('#start-body').inputValue());
		if (request.createVideoroomRoom !== true) throw new Error(JSON.stringify(request));
		await page.locator('input[value=webrtc]').check();
		const back = JSON.parse(await page.locator('#start-body').inputValue());
		if ('createVideoroomRoom' in back) throw new Error(JSON.stringify(back));
	},
};
