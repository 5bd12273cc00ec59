package main

import (
	"context"
	"errors"
	"log"
	"os"
	"path/filepath"
	"time"

	core "k8s.io/api/core/v1"
	failures "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	provisioner   = "slipway.test/folder"
	provisionedBy = "volume.kubernetes.io/storage-provisioner"
	every         = 100 * time.Millisecond
)

type provider struct {
	client  kubernetes.Interface
	folder  string
	address string
}

// What a cloud gives a cluster: volumes, which are folders here and may grow, and addresses of load balancers, which all
// are the node's.
func provide(kubeconfig, folder, address string) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	p := provider{client: kubernetes.NewForConfigOrDie(config), folder: folder, address: address}
	ctx := context.Background()
	all := informers.NewSharedInformerFactory(p.client, 0)
	claims := all.Core().V1().PersistentVolumeClaims().Lister()
	volumes := all.Core().V1().PersistentVolumes().Lister()
	services := all.Core().V1().Services().Lister()
	all.Start(ctx.Done())
	all.WaitForCacheSync(ctx.Done())
	for range time.Tick(every) {
		found, _ := claims.List(labels.Everything())
		for _, claim := range found {
			p.say(p.lookAfterClaim(ctx, claim))
		}
		made, _ := volumes.List(labels.Everything())
		for _, volume := range made {
			p.say(p.removeReleased(ctx, volume))
		}
		offered, _ := services.List(labels.Everything())
		for _, service := range offered {
			p.say(p.giveAddress(ctx, service))
		}
	}
}

// What is read may be older than what is there: the next turn reads anew.
func (p provider) say(err error) {
	if err != nil && !failures.IsAlreadyExists(err) && !failures.IsNotFound(err) && !failures.IsConflict(err) {
		log.Print(err)
	}
}

func (p provider) lookAfterClaim(ctx context.Context, claim *core.PersistentVolumeClaim) error {
	if claim.Annotations[provisionedBy] != provisioner || claim.DeletionTimestamp != nil {
		return nil
	}
	if claim.Spec.VolumeName == "" {
		return p.makeVolume(ctx, claim)
	}
	wanted := claim.Spec.Resources.Requests[core.ResourceStorage]
	has := claim.Status.Capacity[core.ResourceStorage]
	if claim.Status.Phase != core.ClaimBound || wanted.Cmp(has) <= 0 {
		return nil
	}
	volume, err := p.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, meta.GetOptions{})
	if err != nil {
		return err
	}
	volume.Spec.Capacity[core.ResourceStorage] = wanted
	if _, err := p.client.CoreV1().PersistentVolumes().Update(ctx, volume, meta.UpdateOptions{}); err != nil {
		return err
	}
	grown := claim.DeepCopy()
	grown.Status.Capacity[core.ResourceStorage] = wanted
	_, err = p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, grown, meta.UpdateOptions{})
	return err
}

// Anybody may write to a new volume: nothing gives a folder of the machine to the group of a pod.
func (p provider) makeVolume(ctx context.Context, claim *core.PersistentVolumeClaim) error {
	name := "pvc-" + string(claim.UID)
	path := filepath.Join(p.folder, name)
	if err := errors.Join(os.MkdirAll(path, 0o777), os.Chmod(path, 0o777)); err != nil {
		return err
	}
	volume := &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{Name: name, Annotations: map[string]string{provisionedBy: provisioner}},
		Spec: core.PersistentVolumeSpec{
			Capacity:    core.ResourceList{core.ResourceStorage: claim.Spec.Resources.Requests[core.ResourceStorage]},
			AccessModes: claim.Spec.AccessModes,
			ClaimRef: &core.ObjectReference{
				Kind: "PersistentVolumeClaim", APIVersion: "v1",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        core.PersistentVolumeSource{HostPath: &core.HostPathVolumeSource{Path: path}},
		},
	}
	if claim.Spec.StorageClassName != nil {
		volume.Spec.StorageClassName = *claim.Spec.StorageClassName
	}
	_, err := p.client.CoreV1().PersistentVolumes().Create(ctx, volume, meta.CreateOptions{})
	return err
}

func (p provider) removeReleased(ctx context.Context, volume *core.PersistentVolume) error {
	if volume.Annotations[provisionedBy] != provisioner || volume.Status.Phase != core.VolumeReleased {
		return nil
	}
	if err := os.RemoveAll(filepath.Join(p.folder, volume.Name)); err != nil {
		return err
	}
	return p.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, meta.DeleteOptions{})
}

func (p provider) giveAddress(ctx context.Context, service *core.Service) error {
	if service.Spec.Type != core.ServiceTypeLoadBalancer || len(service.Status.LoadBalancer.Ingress) > 0 {
		return nil
	}
	given := service.DeepCopy()
	given.Status.LoadBalancer.Ingress = []core.LoadBalancerIngress{{IP: p.address}}
	_, err := p.client.CoreV1().Services(service.Namespace).UpdateStatus(ctx, given, meta.UpdateOptions{})
	return err
}
