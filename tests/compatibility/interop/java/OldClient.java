import java.util.*;
import kafka.api.ConsumerMetadataRequest;
import kafka.api.FetchRequest;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.TopicAndPartition;
import kafka.javaapi.*;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;
import org.apache.kafka.clients.producer.*;

/** What Kafka 0.8.2 brought along: its Java producer, its SimpleConsumer, and offsets that a group commits to Kafka.
 *
 * OldClient produce HOST PORT TOPIC CODEC: a record for each line "key<tab>value" on stdin; prints their offsets.
 * OldClient consume HOST PORT TOPIC COUNT FETCH_SIZE: prints "offset<tab>key<tab>value" of partition 0.
 * OldClient offsets HOST PORT TOPIC: the earliest and the latest offset of partition 0.
 * OldClient commit HOST PORT TOPIC GROUP OFFSET: commits it (version 1) and prints what is fetched then.
 */
public class OldClient {
    public static void main(String[] args) throws Exception {
        String host = args[1];
        int port = Integer.parseInt(args[2]);
        String topic = args[3];
        switch (args[0]) {
            case "produce": produce(host + ":" + port, topic, args[4]); break;
            case "consume": consume(host, port, topic, Integer.parseInt(args[4]), Integer.parseInt(args[5])); break;
            case "offsets": offsets(host, port, topic); break;
            case "commit": commit(host, port, topic, args[4], Long.parseLong(args[5])); break;
            default: throw new IllegalArgumentException(args[0]);
        }
    }

    static void produce(String bootstrap, String topic, String codec) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", codec);
        settings.put("linger.ms", "20");
        settings.put("acks", "1");
        settings.put("retries", "3");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        KafkaProducer<String, String> producer = new KafkaProducer<String, String>(settings);
        Scanner lines = new Scanner(System.in);
        List<java.util.concurrent.Future<RecordMetadata>> sent = new ArrayList<java.util.concurrent.Future<RecordMetadata>>();
        while (lines.hasNextLine()) {
            String[] parts = lines.nextLine().split("\t", -1);
            String key = parts[0].isEmpty() ? null : parts[0];
            sent.add(producer.send(new ProducerRecord<String, String>(topic, 0, key, parts[1])));
        }
        for (java.util.concurrent.Future<RecordMetadata> one : sent) System.out.println(one.get().offset());
        producer.close();
    }

    static String text(java.nio.ByteBuffer data) throws Exception {
        if (data == null) return "-";
        byte[] bytes = new byte[data.remaining()];
        data.get(bytes);
        return new String(bytes, "UTF-8");
    }

    static void consume(String host, int port, String topic, int count, int fetchSize) throws Exception {
        SimpleConsumer consumer = new SimpleConsumer(host, port, 30000, 1 << 16, "old-client");
        long offset = 0;
        int seen = 0;
        while (seen < count) {
            FetchRequest request = new FetchRequestBuilder().clientId("old-client").minBytes(1).maxWait(1000)
                .addFetch(topic, 0, offset, fetchSize).build();
            FetchResponse response = consumer.fetch(request);
            if (response.hasError()) throw new IllegalStateException("error " + response.errorCode(topic, 0));
            kafka.javaapi.message.ByteBufferMessageSet set = response.messageSet(topic, 0);
            if (set.sizeInBytes() > 0 && set.validBytes() == 0)  // what the high level consumer of then looks for
                throw new kafka.common.MessageSizeTooLargeException("a part of a message at " + offset);
            for (MessageAndOffset found : set) {
                if (found.offset() < offset) continue;
                if (!found.message().isValid()) throw new IllegalStateException("checksum at " + found.offset());
                System.out.println(found.offset() + "\t" + text(found.message().key()) + "\t" + text(found.message().payload()));
                offset = found.nextOffset();
                seen++;
            }
        }
        consumer.close();
    }

    static void offsets(String host, int port, String topic) throws Exception {
        SimpleConsumer consumer = new SimpleConsumer(host, port, 30000, 1 << 16, "old-client");
        TopicAndPartition partition = new TopicAndPartition(topic, 0);
        for (long time : new long[] {kafka.api.OffsetRequest.EarliestTime(), kafka.api.OffsetRequest.LatestTime()}) {
            Map<TopicAndPartition, PartitionOffsetRequestInfo> asked = new HashMap<TopicAndPartition, PartitionOffsetRequestInfo>();
            asked.put(partition, new PartitionOffsetRequestInfo(time, 1));
            OffsetResponse answer = consumer.getOffsetsBefore(new OffsetRequest(asked, (short) 0, "old-client"));
            if (answer.hasError()) throw new IllegalStateException("error " + answer.errorCode(topic, 0));
            System.out.println(answer.offsets(topic, 0)[0]);
        }
        consumer.close();
    }

    static void commit(String host, int port, String topic, String group, long offset) throws Exception {
        TopicAndPartition partition = new TopicAndPartition(topic, 0);
        kafka.network.BlockingChannel channel = new kafka.network.BlockingChannel(host, port, 1 << 16, 1 << 16, 30000);
        channel.connect();
        for (int tries = 0; ; tries++) {
            channel.send(new ConsumerMetadataRequest(group, (short) 0, 1, "old-client"));
            if (ConsumerMetadataResponse.readFrom(channel.receive().buffer()).errorCode() == 0) break;
            if (tries == 100) throw new IllegalStateException("no coordinator");
            Thread.sleep(100);
        }
        Map<TopicAndPartition, kafka.common.OffsetAndMetadata> offsets = new HashMap<TopicAndPartition, kafka.common.OffsetAndMetadata>();
        offsets.put(partition, new kafka.common.OffsetAndMetadata(offset, "by " + group, System.currentTimeMillis()));
        channel.send(new OffsetCommitRequest(group, offsets, 2, "old-client", (short) 1).underlying());
        System.out.println(OffsetCommitResponse.readFrom(channel.receive().buffer()).errors().get(partition));
        channel.send(new OffsetFetchRequest(group, Collections.singletonList(partition), (short) 1, 3, "old-client").underlying());
        kafka.common.OffsetMetadataAndError found = OffsetFetchResponse.readFrom(channel.receive().buffer()).offsets().get(partition);
        System.out.println(found.offset() + "\t" + found.metadata() + "\t" + found.error());
        channel.disconnect();
    }
}
