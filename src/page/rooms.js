// Sessions in rooms: the runner joins the bot, and the user joins with a client of that room. In: the response of /start.
// Out: where to go, as a problem of words.js.

const inNewTab = (url) => Object.assign(new URL(url), { target: '_blank' });

export function videoroom({ videoroomRoom, dailyRoom, videoroomToken, dailyToken }) {
	const room = videoroomRoom ?? dailyRoom;
	if (!room) return { title: 'The bot began without a room', text: 'The request asked for none: “createVideoroomRoom” makes one.' };
	const url = inNewTab(room);
	url.searchParams.set('t', videoroomToken ?? dailyToken);
	return { good: true, title: 'The bot is on its way into the room', text: 'This page cannot enter it; the page of its provider can.', steps: [['Talk there:', url]] };
}

export const mediaroom = ({ url, token, roomName }) => ({
	good: true,
	title: 'The bot is on its way into the room',
	text: 'This page cannot enter it; any client of that server can, with these. The token is a key to the room, good for six hours.',
	steps: [['Server:', url], ['Room:', roomName], ['Token:', token]],
});

videoroom.elsewhere = mediaroom.elsewhere = true;
