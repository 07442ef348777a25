"""A Hydra application: conf/config.yaml holds the settings, and an argument `key=value` changes one."""

import logging

import hydra
import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

log = logging.getLogger(__name__)


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig):
    log.info("configuration:\n%s", OmegaConf.to_yaml(cfg))
    torch.manual_seed(cfg.seed)
    inputs = torch.randn(1024, 16)
    labels = (inputs[:, 0] * inputs[:, 1] > 0).long()
    model = nn.Sequential(nn.Linear(16, cfg.model.width), nn.ReLU(), nn.Linear(cfg.model.width, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.optimizer.lr)
    step = 0
    for epoch in range(cfg.trainer.max_epochs):
        for part in torch.randperm(len(inputs)).split(cfg.data.batch_size):
            loss = nn.functional.cross_entropy(model(inputs[part]), labels[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % cfg.trainer.log_every == 0:
                log.info("epoch=%d step=%d train_loss=%.5f lr=%g", epoch, step, loss.item(), cfg.optimizer.lr)


if __name__ == "__main__":
    main()
