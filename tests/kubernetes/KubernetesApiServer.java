import io.fabric8.kubernetes.client.server.mock.KubernetesCrudDispatcher;
import io.fabric8.kubernetes.client.server.mock.KubernetesMockServer;
import io.fabric8.mockwebserver.Context;
import io.fabric8.mockwebserver.MockWebServer;
import java.net.InetAddress;
import java.util.HashMap;

/** Fabric8's mock of the API server in CRUD mode, on a free loopback port, until its standard input ends. */
public class KubernetesApiServer {
  public static void main(String[] arguments) throws Exception {
    var server = new KubernetesMockServer(
        new Context(), new MockWebServer(), new HashMap<>(), new KubernetesCrudDispatcher(), false);
    server.init(InetAddress.getLoopbackAddress(), 0);
    System.out.println(server.getPort());
    while (System.in.read() >= 0) {}
    server.destroy();
    System.exit(0);
  }
}
