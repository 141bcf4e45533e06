// A provider of OpenID Connect on a free port: main.js CLIENT_ID CLIENT_SECRET REDIRECT_URI prints its address. Whoever
// logs in on its page is taken at their word. Access tokens are JWTs for the audience `kafka`.
import { createServer } from 'node:http'
import Provider from 'oidc-provider'

const [clientId, clientSecret, redirectUri] = process.argv.slice(2)

const server = createServer()
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`
  const provider = new Provider(issuer, {
    clients: [{
      client_id: clientId,
      client_secret: clientSecret,
      redirect_uris: [redirectUri],
      grant_types: ['authorization_code', 'refresh_token'],
      token_endpoint_auth_method: 'client_secret_basic',
    }],
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    features: {
      resourceIndicators: {
        enabled: true,
        defaultResource: () => 'urn:kafka',
        useGrantedResource: () => true,
        getResourceServerInfo: () => ({ scope: 'kafka', audience: 'kafka', accessTokenFormat: 'jwt' }),
      },
    },
  })
  server.on('request', provider.callback())
  console.log(issuer)
})
