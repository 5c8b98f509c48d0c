// A device plugin in Go that passes `nodeplug kubelet verify`; comments explain what a kubelet expects.
//
//	nodeplug kubelet verify -- ./device-plugin {dir}
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const resource = "example.com/gopher"

var devices = []string{"a", "b"}

type plugin struct {
	api.UnimplementedDevicePluginServer
	stopped chan struct{}
}

// The plugin's options: no preferred allocation, no PreStartContainer.
func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// Send the whole list at once and after each change. The stream stays open until the plugin ends.
func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	list := &api.ListAndWatchResponse{}
	for _, id := range devices {
		list.Devices = append(list.Devices, &api.Device{ID: id, Health: api.Healthy})
	}
	if err := stream.Send(list); err != nil {
		return err
	}
	select {
	case <-stream.Context().Done():
	case <-p.stopped:
	}
	return nil
}

// Return what each container gets, and the same for a repeated request. Refuse devices that do not exist.
func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		envs := map[string]string{}
		for _, id := range container.DevicesIds {
			if !known(id) {
				return nil, fmt.Errorf("%s: no device %q; there are %v", resource, id, devices)
			}
			envs["GOPHER_"+id] = "1"
		}
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{Envs: envs})
	}
	return answer, nil
}

func known(id string) bool {
	for _, device := range devices {
		if device == id {
			return true
		}
	}
	return false
}

// Serve at a new socket name: kubelets since 1.37 refuse a name that they are connected to. Serve before you register,
// because the kubelet calls back at once.
func serve(folder string, number int) (stop func(), err error) {
	endpoint := fmt.Sprintf("gopher-%d-%d.sock", os.Getpid(), number)
	path := filepath.Join(folder, endpoint)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	p, server := &plugin{stopped: make(chan struct{})}, grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	go func() { _ = server.Serve(listener) }()
	stop = func() {
		close(p.stopped)
		server.GracefulStop()
		_ = os.Remove(path)
	}
	if err := register(folder, endpoint); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

func register(folder, endpoint string) error {
	kubelet, err := grpc.NewClient("unix://"+filepath.Join(folder, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer kubelet.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request := &api.RegisterRequest{Version: api.Version, Endpoint: endpoint, ResourceName: resource}
	_, err = api.NewRegistrationClient(kubelet).Register(ctx, request)
	return err
}

// Return the identity of a kubelet. Each start creates a new socket, and no plugins are known until they register.
func kubeletAt(folder string) string {
	info, err := os.Stat(filepath.Join(folder, "kubelet.sock"))
	if err != nil {
		return ""
	}
	stat := info.Sys().(*syscall.Stat_t)
	return fmt.Sprint(stat.Dev, stat.Ino, stat.Mtim)
}

func main() {
	folder := os.Args[1]
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	stop, registered := func() {}, ""
	for number := 0; ctx.Err() == nil; {
		if now := kubeletAt(folder); now != "" && now != registered {
			stop()
			number++
			var err error
			if stop, err = serve(folder, number); err != nil {
				log.Printf("cannot register yet: %v", err)
				stop = func() {}
			} else {
				registered = now
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	stop()
}
