package tidegate;

import java.net.SocketException;
import py4j.DefaultGatewayServerListener;
import py4j.Py4JServerConnection;

/**
 * Sends answers to Python at once.
 *
 * <p>py4j writes an answer of more than 8 KiB in parts. TCP holds the second part back until Python
 * has acknowledged the first, which Linux delays by 40 ms, because Python sends nothing meanwhile.
 */
public class PromptAnswers extends DefaultGatewayServerListener {
  public void connectionStarted(Py4JServerConnection connection) {
    try {
      connection.getSocket().setTcpNoDelay(true);
    } catch (SocketException closed) {
      // The thread that reads from the connection reports this.
    }
  }
}
