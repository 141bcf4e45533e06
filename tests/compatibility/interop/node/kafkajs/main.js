// KafkaJS at work: produce, consume, be a group member, administer. See script.js for how it is asked.
'use strict'

const { Kafka, CompressionCodecs, CompressionTypes, ConfigResourceTypes, logLevel } = require('kafkajs')
const { exchange } = require('./login.js')
const { answerEach, records, obeyCommands, whenAskedToLeave, tell, tellRecord, run } = require('../script.js')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')

const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy }
const client = (task) => new Kafka({ clientId: 'stranger', brokers: [task.bootstrap], logLevel: logLevel.ERROR })

async function produce(task) {
  const producer = client(task).producer({ idempotent: Boolean(task.idempotent), allowAutoTopicCreation: false })
  await producer.connect()
  const asked = records()
  const messages = asked.map((r) => {
    const headers = {}
    for (const { key, value } of r.headers) {
      headers[key] = key in headers ? [headers[key], value].flat() : value
    }
    return { partition: r.partition, timestamp: String(r.timestamp_ms), key: r.key, value: r.value, headers }
  })
  const answers = await producer.send({
    topic: task.topic, messages, acks: task.acks, compression: codecs[task.codec],
  })
  const next = new Map(answers.map((a) => [a.partition, Number(a.baseOffset)]))
  for (const { partition } of asked) {
    tell({ partition, offset: next.get(partition) })
    next.set(partition, next.get(partition) + 1)
  }
  await producer.disconnect()
}

// KafkaJS reads in groups only; here each group is new and has one member.
async function consume(task) {
  const consumer = client(task).consumer({ groupId: `${task.topic}-${process.pid}`, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topic: task.topic, fromBeginning: true })
  let left = task.count
  await new Promise((done) => {
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        tellMessage(partition, message)
        left -= 1
        if (left === 0) done()
      },
    })
  })
  await consumer.disconnect()
}

async function member(task) {
  const consumer = client(task).consumer({
    groupId: task.group, sessionTimeout: 6000, heartbeatInterval: 100, maxWaitTimeInMs: 100,
  })
  await consumer.connect()
  await consumer.subscribe({ topic: task.topic, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message }) => {
      await consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }])
      tellMessage(partition, message)
    },
  })
  await new Promise(whenAskedToLeave)
  await consumer.disconnect()
}

function tellMessage(partition, message) {
  const headers = Object.entries(message.headers).flatMap(([key, value]) =>
    [value].flat().map((one) => ({ key, value: one })),
  )
  const { offset, timestamp, key, value } = message
  tellRecord({ partition, offset: Number(offset), timestamp_ms: Number(timestamp), key, value, headers })
}

// Tells a fact after each thing that was done to the task's topic and group and a new topic.
async function administer(task) {
  const admin = client(task).admin()
  await admin.connect()
  const created = `${task.topic}-new`
  const say = (step, is) => tell({ step, is })
  const type = ConfigResourceTypes.TOPIC
  const setting = async (name) => {
    const { resources } = await admin.describeConfigs({
      includeSynonyms: false, resources: [{ type, name: created, configNames: [name] }],
    })
    return resources[0].configEntries[0].configValue
  }

  say('brokers', (await admin.describeCluster()).brokers.length)
  const configEntries = [{ name: 'retention.ms', value: '3600000' }]
  const topics = [{ topic: created, numPartitions: 2, replicationFactor: 1, configEntries }]
  await admin.createTopics({ topics })
  say('created twice', (await admin.createTopics({ topics })) ? 'it was not refused' : 'already exists')
  say('retention.ms', await setting('retention.ms'))
  const both = [...configEntries, { name: 'max.message.bytes', value: '2000000' }]
  await admin.alterConfigs({ validateOnly: false, resources: [{ type, name: created, configEntries: both }] })
  say('max.message.bytes', await setting('max.message.bytes'))
  await admin.createPartitions({ topicPartitions: [{ topic: created, count: 3 }] })
  say('partitions', (await admin.fetchTopicMetadata({ topics: [created] })).topics[0].partitions.length)
  await admin.deleteTopics({ topics: [created] })
  say('gone', !(await admin.listTopics()).includes(created))

  const watermarks = (await admin.fetchTopicOffsets(task.topic))[0]
  say('start', Number(watermarks.low))
  say('end', Number(watermarks.high))
  say('at the time', Number((await admin.fetchTopicOffsetsByTimestamp(task.topic, task.count))[0].offset))
  await admin.deleteTopicRecords({ topic: task.topic, partitions: [{ partition: 0, offset: '3' }] })
  say('start after the cut', Number((await admin.fetchTopicOffsets(task.topic))[0].low))

  const partitions = [{ partition: 0, offset: '7' }]
  await admin.setOffsets({ groupId: task.group, topic: task.topic, partitions })
  const fetched = await admin.fetchOffsets({ groupId: task.group, topics: [task.topic] })
  say('committed', Number(fetched[0].partitions[0].offset))
  const isListed = async () => (await admin.listGroups()).groups.some((found) => found.groupId === task.group)
  say('group listed', await isListed())
  say('group state', (await admin.describeGroups([task.group])).groups[0].state)
  await admin.deleteGroups([task.group])
  say('group still listed', await isListed())
  await admin.disconnect()
}

const transactional = (task) =>
  client(task).producer({
    transactionalId: task.transactional_id, transactionTimeout: task.timeout_ms, maxInFlightRequests: 1,
    idempotent: true, allowAutoTopicCreation: false,
  })

async function transact(task) {
  const producer = transactional(task)
  await producer.connect()
  let begun = await producer.transaction() // asks for the producer id; the first command to begin finds it
  let current = null
  await obeyCommands(async ({ do: what, topic, partition = 0, value, group, offset }) => {
    if (what === 'begin') {
      current = begun || (await producer.transaction())
      begun = null
    } else if (what === 'send') {
      await current.send({ topic, messages: [{ partition, value }] })
    } else if (what === 'offsets') {
      const topics = [{ topic, partitions: [{ partition, offset: String(offset) }] }]
      await current.sendOffsets({ consumerGroupId: group, topics })
    } else {
      await (what === 'commit' ? current.commit() : current.abort())
    }
  })
}

// Copies from topic to topic; every third batch is sent in a transaction that is aborted first.
async function copy(task) {
  const producer = transactional(task)
  await producer.connect()
  const consumer = client(task).consumer({
    groupId: task.group, sessionTimeout: task.session_ms, heartbeatInterval: 100, maxWaitTimeInMs: 100,
  })
  await consumer.connect()
  await consumer.subscribe({ topic: task.topic, fromBeginning: true })
  let turn = 0
  const carry = async (partition, messages) => {
    const transaction = await producer.transaction()
    const sent = messages.map(({ key, value }) => ({ partition, key, value }))
    await transaction.send({ topic: task.target, messages: sent })
    const offset = String(Number(messages.at(-1).offset) + 1)
    const topics = [{ topic: task.topic, partitions: [{ partition, offset }] }]
    await transaction.sendOffsets({ consumerGroupId: task.group, topics })
    return transaction
  }
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat }) => {
      for (let first = 0; first < batch.messages.length; first += task.count) {
        const messages = batch.messages.slice(first, first + task.count)
        if (turn % 3 === 2) await (await carry(batch.partition, messages)).abort()
        await (await carry(batch.partition, messages)).commit()
        resolveOffset(messages.at(-1).offset)
        turn += 1
        tell({ copied: messages.length })
        await heartbeat()
      }
    },
  })
  await new Promise(whenAskedToLeave)
  await consumer.disconnect()
}

run({ login: () => answerEach(exchange), produce, consume, member, admin: administer, transact, copy })
