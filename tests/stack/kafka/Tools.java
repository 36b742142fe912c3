import java.util.ArrayList;
import java.util.List;

/** Calls the main methods of several tools, one after the other: starting a JVM costs more than what they do. */
public class Tools {
    public static void main(String[] words) throws Exception {
        List<String> call = new ArrayList<>();
        for (String word : words) {
            if (!word.equals("--then")) {
                call.add(word);
                continue;
            }
            String[] options = call.subList(1, call.size()).toArray(new String[0]);
            Class.forName(call.get(0)).getMethod("main", String[].class).invoke(null, (Object) options);
            call.clear();
        }
    }
}
