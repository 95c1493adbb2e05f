// Reads messages with Java's library, which from_protobuf reads them with, and writes its rows as text: a line for each value of
// the cases in the first file, into the second. The rules of rows are those of Spark's ProtobufDeserializer without options, but
// of a map's key that comes twice the last counts.

import com.google.protobuf.ByteString;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.EnumValueDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.UninitializedMessageException;
import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

public class JavaMessages {
    public static void main(String[] files) throws Exception {
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(new FileInputStream(files[0])));
                PrintWriter out = new PrintWriter(files[1], StandardCharsets.UTF_8)) {
            for (int cases = in.readInt(); cases > 0; cases--) {
                Descriptor message = message(FileDescriptorSet.parseFrom(part(in)), new String(part(in)));
                for (int values = in.readInt(); values > 0; values--) {
                    out.println(row(message, part(in)));
                }
            }
        }
    }

    static byte[] part(DataInputStream in) throws IOException {
        return in.readNBytes(in.readInt());
    }

    static Descriptor message(FileDescriptorSet set, String name) throws Exception {
        Map<String, Descriptors.FileDescriptor> built = new HashMap<>();
        for (FileDescriptorProto file : set.getFileList()) { // each behind those that it needs
            List<Descriptors.FileDescriptor> needed = new ArrayList<>();
            for (String dependency : file.getDependencyList()) {
                needed.add(built.get(dependency));
            }
            built.put(
                    file.getName(),
                    Descriptors.FileDescriptor.buildFrom(file, needed.toArray(new Descriptors.FileDescriptor[0])));
        }
        return built.get("test.proto").findMessageTypeByName(name.substring(name.lastIndexOf('.') + 1));
    }

    static String row(Descriptor type, byte[] value) {
        try {
            DynamicMessage message = DynamicMessage.parseFrom(type, value);
            for (int number : message.getUnknownFields().asMap().keySet()) {
                if (type.findFieldByNumber(number) != null) {
                    return "malformed";
                }
            }
            return struct(message);
        } catch (IOException | ArithmeticException | UninitializedMessageException error) {
            return "malformed";
        }
    }

    static String struct(DynamicMessage message) {
        StringBuilder row = new StringBuilder("{");
        for (FieldDescriptor field : message.getDescriptorForType().getFields()) {
            boolean present = field.isRepeated() || message.hasField(field) || field.hasDefaultValue();
            row.append(field.getName()).append(':').append(present ? shown(field, message.getField(field)) : "null");
            row.append(';');
        }
        return row.append('}').toString();
    }

    static String shown(FieldDescriptor field, Object value) {
        if (field.isMapField()) {
            Map<String, String> entries = new LinkedHashMap<>();
            for (Object each : (List<?>) value) {
                DynamicMessage entry = (DynamicMessage) each;
                List<FieldDescriptor> both = field.getMessageType().getFields();
                String key = single(both.get(0), entry.getField(both.get(0)));
                entries.remove(key);
                entries.put(key, single(both.get(1), entry.getField(both.get(1))));
            }
            return entries.toString();
        }
        if (!field.isRepeated()) {
            return single(field, value);
        }
        List<String> items = new ArrayList<>();
        for (Object each : (List<?>) value) {
            items.add(single(field, each));
        }
        return items.toString();
    }

    static String single(FieldDescriptor field, Object value) {
        return switch (field.getJavaType()) {
            case FLOAT -> ((Float) value).isNaN() ? "nan" : hex(ByteBuffer.allocate(4).putFloat((Float) value).array());
            case DOUBLE -> ((Double) value).isNaN() ? "nan" : hex(ByteBuffer.allocate(8).putDouble((Double) value).array());
            case STRING -> hex(((String) value).getBytes(StandardCharsets.UTF_8));
            case ENUM -> hex(((EnumValueDescriptor) value).getName().getBytes(StandardCharsets.UTF_8));
            case BYTE_STRING -> hex(((ByteString) value).toByteArray());
            case MESSAGE -> message((DynamicMessage) value);
            default -> value.toString();
        };
    }

    static String message(DynamicMessage value) {
        Descriptor type = value.getDescriptorForType();
        if (!type.getName().equals("Timestamp") && !type.getName().equals("Duration")) {
            return struct(value);
        }
        long seconds = (Long) value.getField(type.getFields().get(0));
        int nanos = (Integer) value.getField(type.getFields().get(1));
        return String.valueOf(Math.multiplyExact(seconds * 1000, 1000L) + TimeUnit.NANOSECONDS.toMicros(nanos));
    }

    static String hex(byte[] data) {
        StringBuilder text = new StringBuilder("x");
        for (byte each : data) {
            text.append(String.format("%02x", each));
        }
        return text.toString();
    }
}
