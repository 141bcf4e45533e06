// Writes a record and reads it back, as login_program.py says.
'use strict'

const fs = require('node:fs')
const { Kafka, logLevel } = require('kafkajs')

async function exchange(login) {
  const kafka = new Kafka({
    clientId: 'stranger',
    brokers: [login.bootstrap],
    logLevel: logLevel.NOTHING,
    ssl: login.protocol.endsWith('SSL') ? tls(login) : false,
    sasl: login.protocol.startsWith('SASL') ? sasl(login) : undefined,
    connectionTimeout: login.limit_ms,
    authenticationTimeout: login.limit_ms,
    requestTimeout: login.limit_ms,
    retry: { retries: 0 },
  })
  const producer = kafka.producer({ allowAutoTopicCreation: false })
  try {
    await producer.connect()
    await producer.send({ topic: login.topic, messages: [{ value: login.value }] })
  } finally {
    await producer.disconnect()
  }
  const consumer = kafka.consumer({ groupId: login.group, maxWaitTimeInMs: 100, retry: { retries: 5 } })
  await consumer.connect()
  await consumer.subscribe({ topic: login.topic, fromBeginning: true })
  const value = await new Promise((done) => {
    consumer.run({ eachMessage: async ({ message }) => done(message.value.toString()) })
  })
  await consumer.disconnect()
  return [value]
}

function tls({ ca, identity }) {
  const own = identity ? fs.readFileSync(identity) : undefined
  return { ca: [fs.readFileSync(ca)], key: own, cert: own }
}

function sasl({ mechanism, username, password, token }) {
  if (mechanism === 'OAUTHBEARER') {
    return { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: token }) }
  }
  return { mechanism: mechanism.toLowerCase(), username, password }
}

module.exports = { exchange }
