// Serves express-rate-limit on a free port of loopback. A path is a form of fields: /draft-6 to
// /draft-8, and /legacy for X-RateLimit-*. Each has a limit of its own for each value of the header
// Client: 10 requests per 4 seconds. The header Window of a response is the end of its window.
const express = require('express')
const { rateLimit } = require('express-rate-limit')

const app = express()
for (const form of ['draft-6', 'draft-7', 'draft-8', 'legacy']) {
	app.get('/' + form, rateLimit({
		windowMs: 4000,
		limit: 10,
		standardHeaders: form === 'legacy' ? false : form,
		legacyHeaders: form === 'legacy',
		keyGenerator: (request) => request.get('Client') ?? '',
		requestPropertyName: 'limit',
		handler: (request, response, next, options) => {
			response.set('Window', request.limit.resetTime.getTime())
			response.status(options.statusCode).send(options.message)
		},
	}), (request, response) => {
		response.set('Window', request.limit.resetTime.getTime())
		response.send('ok')
	})
}
const server = app.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}`))
