// Text of a bot as nodes: **bold**, `code`, [links](https://…) and bare addresses. Everything else stays text, so nothing of a
// bot is ever read as markup. Links lead to http and https only, into another tab.

import { make } from './dom.js';

const MARKS = /\*\*([^*\n]+)\*\*|`([^`\n]+)`|\[([^\]\n]{1,200})\]\((https?:\/\/[^\s()]+)\)|(https?:\/\/[^\s<>"'`]*[^\s<>"'`.,;:!?)\]*])/g;

function link(text, address) {
	if (!URL.canParse(address)) return text;
	return Object.assign(make('a', '', text), { href: address, target: '_blank', rel: 'noopener noreferrer', title: new URL(address).host });
}

export function rich(text) {
	const nodes = [];
	let at = 0;
	for (const found of text.matchAll(MARKS)) {
		const [all, bold, code, label, address, bare] = found;
		nodes.push(text.slice(at, found.index));
		if (bold) nodes.push(make('strong', '', bold));
		else if (code) nodes.push(make('code', '', code));
		else nodes.push(label ? link(label, address) : link(bare, bare));
		at = found.index + all.length;
	}
	return [...nodes, text.slice(at)].filter((node) => node !== '');
}
