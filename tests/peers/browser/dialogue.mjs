// What is said in the pictures of README: each sentence of the caller, and the bot's answer.

export const DIALOGUE = [
	{ user: 'Good morning. What time is it?', bot: 'Good morning. It is a quarter past nine.' },
	{
		user: 'Do I need an umbrella today?',
		runs: { function_name: 'weather', arguments: { city: 'Linz' } },
		bot: 'No. It stays dry, with **21 degrees** in the afternoon.',
	},
	{ user: 'Then remind me to water the plants at six.', bot: 'I will remind you at six this evening.' },
];
