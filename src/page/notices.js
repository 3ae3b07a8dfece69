// What a caller should know before a call. In: the reply of /status, or null, and the name of the chosen bot, if there are several.
// Out: sentences.

function ofBot({ state, error } = {}) {
	if (state === 'starting') return 'The bot is starting: a call waits until it is loaded.';
	// Only the operator learns the error.
	if (state === 'failed') return `The bot cannot be loaded: ${error ?? 'its operator finds the reason in the log of the runner.'}`;
	// The one before serves calls.
	return error && `The bot has changed and cannot be loaded again: ${error}`;
}

export function notices(status, isStopping, bot) {
	const process = bot ? status?.bots?.find(({ name }) => name === bot)?.process : status?.bot_process;
	const far = status?.speech_to ?? [];
	return [
		far.length && `What you say and type goes to ${far.join(' and ')}, a third party, while the call lasts.`,
		status?.recording && 'The runner records the sound of calls.',
		status?.listen_in && 'The operator of this runner can listen to calls.',
		ofBot(process),
		isStopping && 'The runner is stopping: it takes no new calls, and a call in progress may end soon.',
	].filter(Boolean);
}
